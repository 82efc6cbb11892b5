"""Pure functions on arrays: frontier, readings, intervals."""
