"""Numbers, times and JSON as the dashboard prints them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

ABSENT = "–"
"""What stands where there is no value. Never 0."""


def number(value: Any) -> str:
    """A number with about four digits; :data:`ABSENT` for null, NaN and infinities."""
    if value is None or isinstance(value, bool) or not math.isfinite(float(value)):
        return ABSENT
    size = abs(float(value))
    if size == 0 or (float(value).is_integer() and size < 1e15):
        return f"{value:,.0f}"
    if size >= 1e15 or size < 1:
        return f"{value:.3g}"
    decimals = 0 if size >= 1000 else 1 if size >= 100 else 2
    return f"{value:,.{decimals}f}"


def moment(value: datetime | None) -> str:
    """A UTC time to the minute."""
    if value is None or value != value:  # NaT is not equal to itself
        return ABSENT
    zoned = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return f"{zoned:%Y-%m-%d %H:%M} UTC"


def plain(value: Any) -> Any:
    """``value`` as JSON knows it; NaN, NaT and infinities become null, times ISO 8601 in UTC."""
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        if value != value:
            return None
        zoned = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return zoned.isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    return str(value)
