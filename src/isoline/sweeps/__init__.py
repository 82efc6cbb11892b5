"""Plans and their execution."""
