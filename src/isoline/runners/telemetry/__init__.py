"""Samples of devices and of the processor while a launch runs."""
