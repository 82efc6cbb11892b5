"""Renderers: a deployment as exactly what is executed on a kind of pool. Pure; golden files keep them."""
