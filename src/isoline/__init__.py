"""Isoline: nightly, reproducible LLM-inference benchmarks."""

from importlib.metadata import version

__version__ = version("isoline")
