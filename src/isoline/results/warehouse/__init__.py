"""The DuckDB warehouse: its tables, what comes in, and what is asked of it."""
