"""Whose a process, a node or a device is, as durable records; and removing what a dead owner left."""
