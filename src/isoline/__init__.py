"""Isoline: nightly, reproducible LLM-inference benchmarks."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """``__version__``, looked up when somebody asks: it costs more than a whole short command."""
    if name == "__version__":
        from importlib.metadata import version

        return version("isoline")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
