"""Database time (microseconds since 1970 UTC) as the datetimes of the protocol."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, overload

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROS_PER_SECOND: Final = 1_000_000


@overload
def moment(micros: int) -> datetime: ...
@overload
def moment(micros: int | None) -> datetime | None: ...
def moment(micros: int | None) -> datetime | None:
    """The UTC datetime of a database time; None stays None."""
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)


def micros(seconds: float) -> int:
    """A duration in microseconds."""
    return round(seconds * MICROS_PER_SECOND)
