"""Database time for those who are handed a transaction and not the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from sqlalchemy.orm import Session

Clock: TypeAlias = Callable[[Session], int]
CLOCK: Final = "shardkeep_clock"
"""The member of a session's `info` that holds its database's clock."""


def session_now(session: Session) -> int:
    """Database time in microseconds, as `Database.now` gives it."""
    clock: Clock = session.info[CLOCK]
    return clock(session)
