"""The Dash page: figures, layout, data access."""
