"""Machines of a pool: commands on them, what they are, and whether they can take a launch."""
