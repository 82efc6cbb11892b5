"""One thin module for each command group."""
