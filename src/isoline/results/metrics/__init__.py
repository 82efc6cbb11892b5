"""From requests to metrics: the one registry, windows, energy."""
