"""Waiting for what other processes and threads bring about."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], *, seconds: float = 60) -> None:
    """Returns once it holds; AssertionError when it does not in time, which is long, for machines may be busy."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"it did not happen in {seconds} s"
        time.sleep(0.02)
