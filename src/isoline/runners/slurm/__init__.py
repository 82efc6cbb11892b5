"""The batch system: its commands, one job a launch, its nodes, and what is left of jobs."""
