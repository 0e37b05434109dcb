"""Telling a person at the terminal what is being waited for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final, Self

SILENT_SECONDS: Final = 2.0
_TERMINAL_EVERY_SECONDS: Final = 0.5
_LOG_EVERY_SECONDS: Final = 30.0


class WaitProgress:
    """One wait: nothing for two seconds, then a line that is rewritten on a terminal and repeated seldom elsewhere."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._started = time.monotonic()
        self._shown: float | None = None
        self._width = 0

    def show(self, describe: Callable[[], str]) -> None:
        """Say what is being waited for, if it is time to."""
        now = time.monotonic()
        if not self._enabled or now - self._started < SILENT_SECONDS:
            return
        is_terminal = sys.stderr.isatty()
        every = _TERMINAL_EVERY_SECONDS if is_terminal else _LOG_EVERY_SECONDS
        if self._shown is not None and now - self._shown < every:
            return
        self._shown = now
        text = f"shardkeep: {describe()} ({now - self._started:.0f} s)"
        if is_terminal:
            _write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            _write(text + "\n")

    def clear(self) -> None:
        """Take the line off the terminal; showing goes on if there is more to show."""
        if self._width:
            _write("\r" + " " * self._width + "\r")
            self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
