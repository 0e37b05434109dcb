"""Durable directories: directories and entries in them that survive a crash, with as few fsyncs as is safe."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Final

_KNOWN_LIMIT: Final = 100_000


class _Turn:
    """Counts the fsyncs begun on one directory; `lock` is held while one runs."""

    __slots__ = ("begun", "lock", "waiting")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.begun = 0
        self.waiting = 0


class DurableDirectories:
    """Makes directories and makes their entries durable. Thread-safe.

    Threads that want the same directory synced at the same time share one fsync: whoever comes while one runs needs the
    next, and one of them does it for all.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[Path, _Turn] = {}
        self._known: set[Path] = set()

    def ensure(self, directory: Path, *, root: Path) -> None:
        """Makes `directory` and its parents below `root`, which exists, and the entries of all of them durable."""
        if directory == root or directory in self._known:
            return
        self.ensure(directory.parent, root=root)
        # Not exist_ok=True: that looks again, and fails where a delete has removed the directory in between.
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
        self.sync(directory.parent)
        if len(self._known) >= _KNOWN_LIMIT:
            self._known.clear()
        self._known.add(directory)

    def forget(self, directory: Path) -> None:
        """Says that the directory may have been removed."""
        self._known.discard(directory)

    def sync(self, directory: Path) -> None:
        """Returns after an fsync of the directory that began after this call."""
        with self._lock:
            turn = self._turns.setdefault(directory, _Turn())
            turn.waiting += 1
            wanted = turn.begun + 1
        try:
            with turn.lock:
                if turn.begun < wanted:
                    with self._lock:
                        turn.begun += 1
                    _fsync_directory(directory)
        finally:
            with self._lock:
                turn.waiting -= 1
                if not turn.waiting:
                    self._turns.pop(directory, None)


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
