"""Copying a shard out of training's memory: in the caller's thread, segment by segment, within the budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from shardkeep.format.segments import SEGMENT_BYTES
from shardkeep.uploader.arena import Arena, Lease
from shardkeep.uploader.held_shard import HeldShard
from shardkeep.uploader.staged import StagedSegment, StagedSlice

Fill = Callable[[int, memoryview], None]
"""`fill(start_byte, out)` writes `out.nbytes` row-major bytes of the slice, from `start_byte` on, into `out`."""
BATCH_BYTES: Final = 4 << 20
"""Raw bytes that one prepare task works on."""


class Staging:
    """Used by one thread.

    `on_batch` gets batches of segments with their numbers, from 0; `relieve` is called when the budget is used up and
    what was handed over is to be sent.
    """

    def __init__(
        self,
        shard: HeldShard,
        arena: Arena,
        *,
        budget_bytes: int | None,
        on_batch: Callable[[int, Sequence[StagedSegment]], None],
        relieve: Callable[[], None],
    ) -> None:
        self.batches = 0
        self._shard = shard
        self._arena = arena
        self._budget_bytes = budget_bytes
        self._on_batch = on_batch
        self._relieve = relieve
        self._batch: list[StagedSegment] = []
        self._batch_bytes = 0
        self._staged_bytes = 0

    def stage(self, item: StagedSlice, raw_bytes: int, fill: Fill) -> None:
        """Take over a slice's bytes; returns early if the save has failed meanwhile."""
        self._shard.add_slice(item)
        start = 0
        while start < raw_bytes:
            lease = self._arena.reserve(raw_bytes - start, before_waiting=self._make_room)
            if lease is None:
                return
            fill(start, lease.view)
            self._take_over(item, lease)
            start += lease.view.nbytes

    def hand_over_batch(self) -> None:
        """Let the segments staged since the last batch be prepared."""
        if not self._batch:
            return
        number, batch = self.batches, self._batch
        self.batches, self._batch, self._batch_bytes = number + 1, [], 0
        self._on_batch(number, batch)

    def _take_over(self, item: StagedSlice, lease: Lease) -> None:
        size_bytes = lease.view.nbytes
        starts = range(0, size_bytes, SEGMENT_BYTES)
        self._arena.share(lease, len(starts))
        for start in starts:
            view = lease.view[start : start + SEGMENT_BYTES]
            segment = StagedSegment(item, len(item.segments), view, lease.extent)
            item.segments.append(segment)
            self._batch.append(segment)
            self._batch_bytes += view.nbytes
            if self._batch_bytes >= BATCH_BYTES:
                self.hand_over_batch()
        self._staged_bytes += size_bytes
        if self._shard.keeps and self._budget_bytes is not None and self._staged_bytes > self._budget_bytes:
            self._shard.stop_keeping()

    def _make_room(self) -> None:
        """The budget is used up: send what is staged, and let go of what was sent."""
        self._shard.stop_keeping()
        self.hand_over_batch()
        self._relieve()
