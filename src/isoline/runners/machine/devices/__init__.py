"""Accelerators of a machine, as the vendors' own tools report them: one module a tool family.

Parsers are pure (text -> :class:`.model.Device`); :mod:`.reader` runs the tools.
What a tool does not say is None, never 0.
"""
