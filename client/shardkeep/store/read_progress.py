"""Telling a person at the terminal how far a load is."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from shardkeep.uploader.progress import WaitProgress

_PAUSE_SECONDS: Final = 1.0
"""Reads closer together than this are one load: some are read piece by piece."""


class ReadProgress:
    """The bytes of one checkpoint on their way here. `is_shown` is asked when there is something to show."""

    def __init__(self, what: str, is_shown: Callable[[], bool]) -> None:
        self._what = what
        self._is_shown = is_shown
        self._lock = threading.Lock()
        self._wait: WaitProgress | None = None
        self._reading = 0
        self._ended = 0.0
        self._done_bytes = 0
        self._total_bytes = 0

    @contextlib.contextmanager
    def reading(self, total_bytes: int) -> Iterator[None]:
        """These bytes are being read."""
        with self._lock:
            if self._wait is None or (not self._reading and time.monotonic() - self._ended > _PAUSE_SECONDS):
                self._wait = WaitProgress(enabled=self._is_shown())
                self._done_bytes = self._total_bytes = 0
            self._reading += 1
            self._total_bytes += total_bytes
        try:
            yield
        finally:
            with self._lock:
                self._reading -= 1
                self._ended = time.monotonic()
                if not self._reading:
                    self._wait.clear()

    def advance(self, size_bytes: int) -> None:
        """So many of them have arrived."""
        with self._lock:
            self._done_bytes += size_bytes

    def show(self) -> None:
        """Say how far it is, if it is time to."""
        with self._lock:
            if self._wait is not None:
                self._wait.show(self._text)

    def _text(self) -> str:
        return f"reading {self._what}: {_gigabytes(self._done_bytes)} of {_gigabytes(self._total_bytes)} GB"


def _gigabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.2f}"
