"""Launchers: the one interface, what all kinds share (parts, phases, readiness, watch), and each kind."""
