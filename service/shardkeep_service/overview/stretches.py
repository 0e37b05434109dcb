"""The stretches of time of the overview: which they are, without asking anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shardkeep_service.moments import MICROS_PER_SECOND

STRETCHES_LIMIT: Final = 400
WINDOW_HOURS_LIMIT: Final = 8_760
_HOUR: Final = 3_600
_SECONDS: Final = (60, 300, 900, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, 24 * _HOUR)
"""Lengths that people count in. The longest covers the longest window."""


@dataclass(frozen=True, slots=True)
class Stretches:
    """`count` stretches of `seconds`, the first of which begins at `start`, in microseconds of database time."""

    start: int
    seconds: int
    count: int

    @property
    def micros(self) -> int:
        """The length of one."""
        return self.seconds * MICROS_PER_SECOND

    def start_of(self, index: int) -> int:
        """When one of them begins."""
        return self.start + index * self.micros


def plan_stretches(window_hours: int, *, now: int) -> Stretches:
    """Whole stretches that cover the window: the first holds its start, the last is the present one."""
    window_seconds = window_hours * _HOUR
    seconds = next(each for each in _SECONDS if window_seconds // each < STRETCHES_LIMIT)
    count = window_seconds // seconds + 1
    length = seconds * MICROS_PER_SECOND
    return Stretches(start=now // length * length - (count - 1) * length, seconds=seconds, count=count)
