"""From a sweep file to its plan. Starts nothing."""
