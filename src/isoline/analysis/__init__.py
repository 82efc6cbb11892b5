"""Pure functions on arrays: frontier, readings, intervals, and the rows that show them."""
