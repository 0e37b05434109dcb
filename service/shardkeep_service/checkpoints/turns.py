"""Turns: how many requests at once may do what takes seconds or much memory, so that they never starve the others."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.errors import Refusal

_RETRY_AFTER_SECONDS: Final = 2.0


class Turns:
    """At most `limit` at a time; of the others `waiting` may wait, each so long. Thread-safe.

    Requests are served by some forty threads, which also renew sessions: so most of them must stay free.
    """

    def __init__(self, *, limit: int = 2, waiting: int = 6, wait_seconds: float = 20.0) -> None:
        self._free = threading.Semaphore(limit)
        self._places = threading.Semaphore(limit + waiting)
        self._wait_seconds = wait_seconds

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Holds a turn; Refusal `busy` where too many wait already, or none came in time."""
        if not self._places.acquire(blocking=False):
            raise _busy()
        try:
            if not self._free.acquire(timeout=self._wait_seconds):
                raise _busy()
            try:
                yield
            finally:
                self._free.release()
        finally:
            self._places.release()


def _busy() -> Refusal:
    return Refusal(
        ErrorCode.BUSY,
        "too many requests read what whole checkpoints hold or name at this moment; retry",
        retry_after_seconds=_RETRY_AFTER_SECONDS,
    )
