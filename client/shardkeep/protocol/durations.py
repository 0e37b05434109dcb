"""Durations as sentences say them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60))


def duration_text(seconds: int) -> str:
    """In the largest unit that says it exactly: `7 days`, `36 hours`, `90 s`."""
    for name, unit in _UNITS:
        count, rest = divmod(seconds, unit)
        if count and not rest:
            return f"{count} {name}" if count == 1 else f"{count} {name}s"
    return f"{seconds} s"
