"""Which stored bytes are fetched with one request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Generic, TypeVar

from shardkeep.format.segments import ChunkRef

GAP_BYTES: Final = 256 * 1024
"""Unneeded bytes read rather than asking again: what a request costs, 0.3 to 1 ms of CPU at both ends together, is what
a quarter of a megabyte costs at the 0.5 to 1 GB/s of a local service; over farther links a round trip costs more."""
LONGEST_BYTES: Final = 16 << 20
"""A longer range would leave too few requests to run in parallel, and hold more memory where it must be decoded."""
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class StoredExtent(Generic[Key]):
    """Bytes needed: `size_bytes` from `offset` on in `chunk`; `key` is the caller's."""

    chunk: ChunkRef
    offset: int
    size_bytes: int
    key: Key

    @property
    def end(self) -> int:
        """The stored byte after the last one."""
        return self.offset + self.size_bytes


@dataclass(frozen=True, slots=True)
class RangeRead(Generic[Key]):
    """One request: the bytes from the first extent's start to the last one's end, gaps included."""

    chunk: ChunkRef
    extents: tuple[StoredExtent[Key], ...]

    @property
    def offset(self) -> int:
        """The first stored byte read."""
        return self.extents[0].offset

    @property
    def size_bytes(self) -> int:
        """How many are read, gaps included."""
        return self.extents[-1].end - self.extents[0].offset

    def gaps(self) -> tuple[int, ...]:
        """Unneeded bytes after each extent; the last has none."""
        return (*(later.offset - earlier.end for earlier, later in pairwise(self.extents)), 0)


def plan_range_reads(
    extents: Iterable[StoredExtent[Key]], *, gap_bytes: int = GAP_BYTES, longest_bytes: int = LONGEST_BYTES
) -> list[RangeRead[Key]]:
    """Merge the extents of each chunk, in stored order. Extents must not overlap; longest requests come first."""
    by_chunk: dict[ChunkRef, list[StoredExtent[Key]]] = defaultdict(list)
    for extent in extents:
        by_chunk[extent.chunk].append(extent)
    reads = [
        RangeRead(chunk, tuple(merged))
        for chunk, needed in by_chunk.items()
        for merged in _merge(sorted(needed, key=lambda extent: extent.offset), gap_bytes, longest_bytes)
    ]
    return sorted(reads, key=lambda read: -read.size_bytes)


def _merge(ordered: list[StoredExtent[Key]], gap_bytes: int, longest_bytes: int) -> list[list[StoredExtent[Key]]]:
    merged = [[ordered[0]]]
    for extent in ordered[1:]:
        current = merged[-1]
        is_near = extent.offset - current[-1].end <= gap_bytes
        if is_near and extent.end - current[0].offset <= longest_bytes:
            current.append(extent)
        else:
            merged.append([extent])
    return merged
