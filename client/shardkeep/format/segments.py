"""Segments, slices and values as rows: what a client puts into a manifest and reads back from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from shardkeep.format.chunks import ChunkRef
from shardkeep.format.codecs import Codec
from shardkeep.format.regions import Region

__all__ = [
    "SEGMENT_BYTES",
    "ChunkRef",
    "SegmentRef",
    "SliceKind",
    "SliceRecord",
    "ValueRecord",
    "segment_count",
    "segment_sizes",
]

SEGMENT_BYTES = 1 << 20
"""Raw bytes of every segment of a slice but the last, which holds the rest."""


def segment_count(raw_bytes: int) -> int:
    """Into how many segments a slice of `raw_bytes` is cut; none if it is empty."""
    return -(-raw_bytes // SEGMENT_BYTES)


def segment_sizes(raw_bytes: int) -> tuple[int, ...]:
    """The raw bytes of each segment, in order."""
    whole, rest = divmod(raw_bytes, SEGMENT_BYTES)
    return (SEGMENT_BYTES,) * whole + ((rest,) if rest else ())


class SliceKind(IntEnum):
    """What a tensor is in training. Codes are stored: never change one."""

    PARAMETER = 0
    FROZEN = 1
    OPTIMIZER = 2
    BUFFER = 3
    """May differ between ranks; then each rank's own is kept."""
    VALUE = 4
    """The bytes of a big value, under a name made of its content; kept for every rank that stores it."""
    TENSOR = 5
    """A tensor the user named, in a plain dict."""


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """Where one segment's encoded bytes are: `size_bytes` from `offset` on in `chunk`.

    `fingerprint` is of the raw bytes.
    """

    chunk: ChunkRef
    offset: int
    size_bytes: int
    codec: Codec
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """The part of one named tensor that a rank holds.

    An ordinary slice's `fingerprints` equal its segments'. A witness was only fingerprinted, because another rank
    stores this replica: it has fingerprints and no segments. An empty region has neither: it says that this rank knows
    the tensor. `dtype` is a name of `shardkeep.format.dtypes`, `shape` the global shape.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    region: Region
    kind: SliceKind
    witness: bool
    segments: tuple[SegmentRef, ...]
    fingerprints: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ValueRecord:
    """One piece of non-tensor state, encoded by `shardkeep.format.values`."""

    path: str
    encoded: bytes
    per_rank: bool
