"""The staging memory: extents handed out to segments, bounded by a budget, and reused by the next save."""

from __future__ import annotations

import logging
import mmap
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shardkeep.format.segments import SEGMENT_BYTES

_log = logging.getLogger("shardkeep")
EXTENT_BYTES: Final = 32 << 20
_ALIGNMENT: Final = 64
_HOLES_KEPT: Final = 16
_LEAST_HOLE_BYTES: Final = 4096


class Extent:
    """One piece of staging memory and how many leases are in it."""

    def __init__(self, size_bytes: int) -> None:
        self._memory = mmap.mmap(-1, size_bytes)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self.view = memoryview(self._memory)
        self.leases = 0


@dataclass(slots=True)
class Lease:
    """Staged bytes: `view` may be written until each holder has released the extent once."""

    extent: Extent
    view: memoryview


class Arena:
    """Staging memory of one rank. One thread reserves; any thread releases.

    Memory is kept between saves, so that a run's memory is flat and only the first save pays for fresh pages.
    """

    def __init__(self, budget_bytes: int | None) -> None:
        self._budget_bytes = budget_bytes
        self._extent_bytes = EXTENT_BYTES
        if budget_bytes is not None:
            # At least eight extents, so that some are sent while others fill.
            self._extent_bytes = min(
                EXTENT_BYTES, max(SEGMENT_BYTES, budget_bytes // 8 // SEGMENT_BYTES * SEGMENT_BYTES)
            )
        self._changed = threading.Condition()
        self._free: list[Extent] = []
        self._made = 0
        self._current: Extent | None = None
        self._used = 0
        self._holes: list[tuple[Extent, int, int]] = []
        self._closed = False
        self._told = False
        self.is_waited_for = False

    @property
    def budget_bytes(self) -> int | None:
        """The most memory it may hold; None if it may grow."""
        return self._budget_bytes

    @property
    def made_bytes(self) -> int:
        """The memory held, used or not."""
        return self._made * self._extent_bytes

    def begin(self) -> None:
        """A save begins: everything is free."""
        with self._changed:
            self._closed = False
            self._retire_current()

    def close(self) -> None:
        """The save failed: a waiting `reserve` returns None, and so does every later one."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def release_memory(self) -> None:
        """Give unused memory back to the system."""
        with self._changed:
            self._retire_current()
            self._made -= len(self._free)
            self._free.clear()

    def reserve(self, size_bytes: int, *, before_waiting: Callable[[], None]) -> Lease | None:
        """Memory for the next bytes of a slice: all of `size_bytes`, or as many whole segments of it as fit at once.

        Waits for memory to be released when the budget is used up, after calling `before_waiting`; None once closed.
        """
        while True:
            with self._changed:
                lease = None if self._closed else self._take(size_bytes)
                if lease is not None or self._closed:
                    self.is_waited_for = False
                    return lease
                self.is_waited_for = True
            self._tell()
            before_waiting()
            with self._changed:
                if not self._closed and not self._free:
                    self._changed.wait(timeout=0.5)

    def share(self, lease: Lease, holders: int) -> None:
        """Let a lease be held, and released, by so many instead of one."""
        with self._changed:
            lease.extent.leases += holders - 1

    def release(self, extent: Extent) -> None:
        """Give one lease in an extent back."""
        with self._changed:
            extent.leases -= 1
            if extent.leases == 0 and extent is not self._current:
                self._recycle(extent)

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            _log.warning(
                "staging_bytes (%d MiB) is below this rank's shard: saving blocks while it streams through",
                (self._budget_bytes or 0) >> 20,
            )

    def _take(self, size_bytes: int) -> Lease | None:
        lease = self._from_hole(size_bytes) if size_bytes < SEGMENT_BYTES else None
        if lease is not None:
            return lease
        if not self._fits_current(size_bytes) and not self._next_extent():
            return None
        assert self._current is not None
        left = self._extent_bytes - self._used
        taken = size_bytes if size_bytes <= left else left // SEGMENT_BYTES * SEGMENT_BYTES
        lease = self._lease(self._current, self._used, taken)
        self._used += -(-taken // _ALIGNMENT) * _ALIGNMENT
        return lease

    def _fits_current(self, size_bytes: int) -> bool:
        return self._current is not None and min(size_bytes, SEGMENT_BYTES) <= self._extent_bytes - self._used

    def _next_extent(self) -> bool:
        extent = self._free.pop() if self._free else self._make()
        if extent is None:
            return False
        left_over = (self._current, self._used)
        self._current, self._used = extent, 0
        if left_over[0] is not None:
            self._keep_hole(left_over[0], left_over[1], self._extent_bytes)
            if left_over[0].leases == 0:
                self._recycle(left_over[0])
        return True

    def _make(self) -> Extent | None:
        if self._budget_bytes is not None and (self._made + 1) * self._extent_bytes > self._budget_bytes:
            return None
        self._made += 1
        return Extent(self._extent_bytes)

    def _from_hole(self, size_bytes: int) -> Lease | None:
        for position, (extent, start, stop) in enumerate(self._holes):
            if stop - start >= size_bytes:
                del self._holes[position]
                self._keep_hole(extent, start + -(-size_bytes // _ALIGNMENT) * _ALIGNMENT, stop)
                return self._lease(extent, start, size_bytes)
        return None

    def _keep_hole(self, extent: Extent, start: int, stop: int) -> None:
        if stop - start >= _LEAST_HOLE_BYTES and len(self._holes) < _HOLES_KEPT:
            self._holes.append((extent, start, stop))

    def _lease(self, extent: Extent, start: int, size_bytes: int) -> Lease:
        extent.leases += 1
        return Lease(extent, extent.view[start : start + size_bytes])

    def _retire_current(self) -> None:
        current, self._current, self._used = self._current, None, 0
        if current is not None and current.leases == 0:
            self._recycle(current)
        self._holes.clear()

    def _recycle(self, extent: Extent) -> None:
        self._holes = [hole for hole in self._holes if hole[0] is not extent]
        self._free.append(extent)
        self._changed.notify_all()
