"""Which segments share a chunk. Only the order of staging and sizes count, so equal states make equal chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, TypeVar

from shardkeep.format.chunks import TARGET_CHUNK_BYTES
from shardkeep.format.segments import SliceKind

SMALL_SLICE_BYTES: Final = 4096
"""Slices up to this are scalars and counters that change at every step, and would make their neighbours' chunk anew."""
Segment = TypeVar("Segment")


class PackingGroup(IntEnum):
    """What is packed apart from the rest: weights can be read alone, and a changing scalar touches no big chunk."""

    PARAMETERS = 0
    FROZEN = 1
    OPTIMIZER = 2
    TENSORS = 3
    BUFFERS = 4
    SMALL_STATE = 5
    VALUES = 6


_BY_KIND: Final = {
    SliceKind.PARAMETER: PackingGroup.PARAMETERS,
    SliceKind.FROZEN: PackingGroup.FROZEN,
    SliceKind.OPTIMIZER: PackingGroup.OPTIMIZER,
    SliceKind.BUFFER: PackingGroup.BUFFERS,
    SliceKind.VALUE: PackingGroup.VALUES,
    SliceKind.TENSOR: PackingGroup.TENSORS,
}


def packing_group(kind: SliceKind, raw_bytes: int) -> PackingGroup:
    """The group of a slice. Small parameters stay with the parameters: they are read with them."""
    if kind in {SliceKind.OPTIMIZER, SliceKind.TENSOR} and raw_bytes <= SMALL_SLICE_BYTES:
        return PackingGroup.SMALL_STATE
    return _BY_KIND[kind]


@dataclass(frozen=True, slots=True)
class PackedChunk(Generic[Segment]):
    """Segments that make one chunk, each with the offset of its stored bytes."""

    group: PackingGroup
    segments: tuple[tuple[Segment, int], ...]
    size_bytes: int


class ChunkPacker(Generic[Segment]):
    """Fills one chunk a group, in the order segments are added."""

    def __init__(self, *, target_bytes: int = TARGET_CHUNK_BYTES) -> None:
        self._target_bytes = target_bytes
        self._open: dict[PackingGroup, list[tuple[Segment, int]]] = {}
        self._sizes: dict[PackingGroup, int] = {}

    def add(self, group: PackingGroup, segment: Segment, size_bytes: int) -> PackedChunk[Segment] | None:
        """Put a segment into its group's chunk; gives the chunk that had no room left for it."""
        full = None
        if self._sizes.get(group, 0) + size_bytes > self._target_bytes:
            full = self.close(group)
        offset = self._sizes.get(group, 0)
        self._open.setdefault(group, []).append((segment, offset))
        self._sizes[group] = offset + size_bytes
        return full

    def begun_bytes(self, group: PackingGroup) -> int:
        """The size of the group's chunk so far."""
        return self._sizes.get(group, 0)

    def flush(self) -> Iterator[PackedChunk[Segment]]:
        """Every chunk begun, full or not."""
        for group in sorted(self._open):
            chunk = self.close(group)
            if chunk is not None:
                yield chunk

    def close(self, group: PackingGroup) -> PackedChunk[Segment] | None:
        """The group's chunk as it is; None if it is empty."""
        segments = self._open.pop(group, None)
        size_bytes = self._sizes.pop(group, 0)
        return PackedChunk(group, tuple(segments), size_bytes) if segments else None
