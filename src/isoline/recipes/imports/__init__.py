"""Recipes out of other people's configuration files: what could be said, what not, and why."""
