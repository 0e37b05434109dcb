"""What has been staged and not yet committed: slices, their segments, and the chunks these were packed into."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardkeep.format.codecs import Codec
from shardkeep.format.dtypes import DType
from shardkeep.format.regions import Region
from shardkeep.format.segments import ChunkRef, SegmentRef, SliceKind, SliceRecord
from shardkeep.planning.packing import PackedChunk, PackingGroup
from shardkeep.uploader.arena import Extent


@dataclass(slots=True, eq=False)
class StagedSegment:
    """One segment on its way. `stored` are the bytes to send: the raw ones, or what they were encoded to in place."""

    slice: StagedSlice
    position: int
    stored: memoryview
    extent: Extent | None
    codec: Codec = Codec.RAW
    fingerprint: bytes = b""
    reused: SegmentRef | None = None
    chunk: StagedChunk | None = None
    offset: int = 0
    size_bytes: int = 0

    @property
    def is_held(self) -> bool:
        """Whether the staged bytes are still there."""
        return self.extent is not None

    def ref(self) -> SegmentRef:
        """Where the segment is stored, once its chunk has a name."""
        if self.reused is not None:
            return self.reused
        assert self.chunk is not None
        assert self.chunk.ref is not None
        return SegmentRef(self.chunk.ref, self.offset, self.size_bytes, self.codec, self.fingerprint)


@dataclass(slots=True, eq=False)
class StagedSlice:
    """One slice and its segments so far."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    region: Region
    kind: SliceKind
    witness: bool
    group: PackingGroup
    segments: list[StagedSegment] = field(default_factory=list)

    def record(self) -> SliceRecord:
        """The slice as the manifest names it."""
        return SliceRecord(
            self.name,
            self.dtype.name,
            self.shape,
            self.region,
            self.kind,
            self.witness,
            () if self.witness else tuple(segment.ref() for segment in self.segments),
            tuple(segment.fingerprint for segment in self.segments),
        )


@dataclass(slots=True, eq=False)
class StagedChunk:
    """A packed chunk. `ref` is its name, once hashed."""

    packed: PackedChunk[StagedSegment]
    ref: ChunkRef | None = None
    is_stored: bool = False

    def parts(self) -> list[memoryview]:
        """The bytes to send, from where they lie; segments that lie side by side make one part."""
        parts: list[memoryview] = []
        for segment, _ in self.packed.segments:
            parts.append(segment.stored)
        return parts
