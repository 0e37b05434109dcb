"""One rank's shard between staging and commit: its slices and chunks, and which of their bytes are still held."""

from __future__ import annotations

import threading
from collections.abc import Collection

from shardkeep.format.segments import SliceRecord
from shardkeep.uploader.arena import Arena
from shardkeep.uploader.staged import StagedChunk, StagedSegment, StagedSlice


class HeldShard:
    """Thread-safe. While it `keeps`, stored bytes stay in memory: chunks that the service loses can be healed."""

    def __init__(self, arena: Arena, *, keeps: bool) -> None:
        self._arena = arena
        self._lock = threading.Lock()
        self._keeps = keeps
        self._chunks_under_way = 0
        self._slices: list[StagedSlice] = []
        self._chunks: list[StagedChunk] = []

    @property
    def keeps(self) -> bool:
        """Whether stored bytes are kept until the commit."""
        return self._keeps

    @property
    def is_idle(self) -> bool:
        """Whether no chunk is on its way to the store."""
        return not self._chunks_under_way

    def add_slice(self, item: StagedSlice) -> None:
        """A slice is being staged."""
        self._slices.append(item)

    def chunk_begun(self, chunk: StagedChunk) -> None:
        """A chunk was packed and is to be sent."""
        with self._lock:
            self._chunks.append(chunk)
            self._chunks_under_way += 1

    def chunk_begun_again(self, chunk: StagedChunk) -> None:
        """The service lost a stored chunk: it is to be sent again."""
        with self._lock:
            chunk.is_stored = False
            self._chunks_under_way += 1

    def chunk_stored(self, chunk: StagedChunk) -> None:
        """The service has a chunk; its bytes are let go of unless they are kept."""
        with self._lock:
            chunk.is_stored = True
            self._chunks_under_way -= 1
            keeps = self._keeps
        if not keeps:
            self._let_go(chunk)

    def stop_keeping(self) -> None:
        """Let go of what is stored, now and from now on."""
        with self._lock:
            was_keeping, self._keeps = self._keeps, False
            stored = [chunk for chunk in self._chunks if chunk.is_stored] if was_keeping else []
        for chunk in stored:
            self._let_go(chunk)

    def chunks_named(self, digests: Collection[str]) -> list[StagedChunk]:
        """The chunks of this save with these names."""
        return [chunk for chunk in self._chunks if chunk.ref is not None and chunk.ref.digest in digests]

    def segments_reusing(self, digests: Collection[str]) -> list[StagedSegment]:
        """The segments that were not sent because these chunks had them."""
        return [
            segment
            for item in self._slices
            for segment in item.segments
            if segment.reused is not None and segment.reused.chunk.digest in digests
        ]

    def records(self) -> list[SliceRecord]:
        """The slices as the manifest names them; every chunk must have its name."""
        return [item.record() for item in self._slices]

    def free(self) -> None:
        """Let go of everything; no other thread may use it any more."""
        for item in self._slices:
            for segment in item.segments:
                if segment.extent is not None:
                    self._arena.release(segment.extent)
                    segment.extent = None
        self._slices.clear()
        self._chunks.clear()

    def _let_go(self, chunk: StagedChunk) -> None:
        for segment, _ in chunk.packed.segments:
            with self._lock:
                extent, segment.extent = segment.extent, None
            if extent is not None:
                self._arena.release(extent)
