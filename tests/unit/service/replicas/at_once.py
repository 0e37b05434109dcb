"""Doing several things at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def at_once(*actions: Callable[[], Result], seconds: float = 60) -> list[Result]:
    """What each of them gave; they start together, in threads of their own."""
    together = threading.Barrier(len(actions))

    def begin(action: Callable[[], Result]) -> Result:
        together.wait(seconds)
        return action()

    with ThreadPoolExecutor(len(actions)) as threads:
        begun = [threads.submit(begin, action) for action in actions]
        return [one.result(seconds) for one in begun]


def all_equal(found: Sequence[object]) -> bool:
    """Whether everybody was told the same."""
    return all(one == found[0] for one in found)
