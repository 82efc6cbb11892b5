"""Is the output still right: the canary batch and small accuracy checks."""
