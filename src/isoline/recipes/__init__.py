"""Recipe schema, lint, render and lock: pure, from YAML to an argument vector."""
