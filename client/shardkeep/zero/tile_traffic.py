"""Tiles on their way between a scratch file and memory: read ahead, computed on, written behind.

Three sets of buffers where the budget allows it; with two, a tile is read while the one before is computed on; with
one, nothing overlaps. A set has one owner at a time: the thread that computes, or the one job that reads or writes it.
"""

from __future__ import annotations

import contextlib
import mmap
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final

import torch

from shardkeep.errors import StateError
from shardkeep.zero.scratch_file import ScratchFile, Span, rounded_up

MOST_SETS: Final = 3

TileKey = tuple[int, int]
Move = tuple[Span, int]
"""Bytes of the file, and where in the set they lie."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """What a set is to hold. `key`: of the tile; a read waits for the last write under the same key."""

    key: TileKey
    moves: tuple[Move, ...]


class BufferSet:
    """Page-aligned memory for one tile."""

    def __init__(self, size_bytes: int) -> None:
        self._memory = mmap.mmap(-1, size_bytes)
        self.bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        self.view = memoryview(self._memory)
        self.fetch: Fetch | None = None
        self.job: Future[None] | None = None

    def tensor(self, at: int, count: int, dtype: torch.dtype) -> torch.Tensor:
        """`count` elements from byte `at` on."""
        return self.bytes[at : at + count * dtype.itemsize].view(dtype)


class TileTraffic:
    """The sets of one rank and the threads that fill and empty them. Used by one thread at a time."""

    def __init__(self, file: ScratchFile) -> None:
        self.budget_bytes = 0
        self._file = file
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="shardkeep-nvme")
        self._set_bytes = 0
        self._sets: deque[BufferSet] = deque()
        self._taken: list[BufferSet] = []
        self._writes: dict[TileKey, Future[None]] = {}
        self._failure: BaseException | None = None
        """Of a write: nothing goes on after it."""

    @property
    def set_bytes(self) -> int:
        """The size of one set, for the largest tile, in whole pages."""
        return self._set_bytes

    @property
    def held_bytes(self) -> int:
        """What all sets take."""
        return sum(one.bytes.numel() for one in (*self._sets, *self._taken))

    def reserve(self, size_bytes: int) -> None:
        """From the next tile on, sets have at least this size."""
        self._set_bytes = max(self._set_bytes, mmap.PAGESIZE, rounded_up(size_bytes, mmap.PAGESIZE))

    def take(self, fetch: Fetch) -> BufferSet:
        """A set that holds it; `put_back` must follow."""
        self._check()
        found = next((one for one in self._sets if one.fetch == fetch), None)
        if found is None:
            found = self._start(fetch)
        self._sets.remove(found)
        self._taken.append(found)
        job, found.job, found.fetch = found.job, None, None
        try:
            if job is not None:
                job.result()
        except BaseException:
            self.put_back(found, fetch.key, ())
            raise
        return found

    def read_ahead(self, fetch: Fetch) -> None:
        """Fills a set that nobody waits for, if there is one."""
        if self._sets and not self._must_grow and all(one.fetch != fetch for one in self._sets):
            self._start(fetch)

    def put_back(self, done: BufferSet, key: TileKey, moves: Sequence[Move]) -> None:
        """The set may be used again once the moves are written. What was read ahead of the same tile is old then."""
        if done not in self._taken:
            return
        self._taken.remove(done)
        self._sets.append(done)
        if not moves:
            return
        for one in self._sets:
            if one.fetch is not None and one.fetch.key == key:
                one.fetch = None
        done.job = self._writes[key] = self._pool.submit(self._write, done, tuple(moves))

    def drain(self) -> None:
        """Returns when nothing moves any more; raises what failed since `reset`."""
        for one in self._sets:
            job, one.job, one.fetch = one.job, None, None
            if job is not None:
                wait([job])
        self._writes.clear()
        self._check()

    def reset(self) -> None:
        """After a failure: waits for what moves and forgets it, failed or not. No set is taken any more."""
        self._failure = None
        self._sets.extend(self._taken)
        self._taken.clear()
        with contextlib.suppress(StateError):
            self.drain()
        self._failure = None

    def close(self) -> None:
        """Waits for what moves and gives the sets back."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._sets.clear()

    @property
    def _must_grow(self) -> bool:
        return not self._sets or self._sets[0].bytes.numel() < self._set_bytes

    def _start(self, fetch: Fetch) -> BufferSet:
        """Into the set that was used the longest ago."""
        if self._must_grow and not self._taken:
            self.drain()
            self._sets.clear()
            count = max(1, min(MOST_SETS, self.budget_bytes // max(self._set_bytes, 1)))
            self._sets.extend(BufferSet(self._set_bytes) for _ in range(count))
        unread = [one for one in self._sets if one.fetch is None]
        chosen = (unread or self._sets)[0]
        before, write = chosen.job, self._writes.get(fetch.key)
        chosen.fetch = fetch
        chosen.job = self._pool.submit(self._read, chosen, fetch, before, write)
        return chosen

    def _read(self, into: BufferSet, fetch: Fetch, before: Future[None] | None, write: Future[None] | None) -> None:
        """What it waits for was handed to the pool before it, so it runs or has run."""
        for earlier in (before, write):
            if earlier is not None:
                earlier.result()
        for span, at in fetch.moves:
            self._file.read(span.offset, into.view[at : at + span.size_bytes])

    def _write(self, source: BufferSet, moves: tuple[Move, ...]) -> None:
        try:
            for span, at in moves:
                self._file.write(span.offset, source.view[at : at + span.size_bytes])
        except BaseException as exc:
            self._failure = exc
            raise

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
