"""What a rank's manifest says each chunk holds, and whether the chunk's bytes are that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardkeep.errors import FormatError, IntegrityError
from shardkeep.format.chunks import ChunkRef, verify_chunk
from shardkeep.format.codecs import decode_segment
from shardkeep.format.dtypes import dtype_named
from shardkeep.format.fingerprints import fingerprint
from shardkeep.format.regions import Region, regions_of_flat_range
from shardkeep.format.segments import SEGMENT_BYTES, SegmentRef, SliceRecord, segment_sizes


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """One segment to check: the `number`-th of the slice that `record` describes, `raw_bytes` long."""

    record: SliceRecord
    number: int
    segment: SegmentRef
    raw_bytes: int

    def regions(self) -> tuple[Region, ...]:
        """Which elements of the global tensor the segment holds: boxes in row-major order."""
        item_bytes = dtype_named(self.record.dtype).item_bytes
        start = self.number * SEGMENT_BYTES // item_bytes
        boxes = regions_of_flat_range(self.record.region.sizes, start, start + self.raw_bytes // item_bytes)
        return tuple(box.shifted(self.record.region.offsets) for box in boxes)


@dataclass(frozen=True, slots=True)
class ChunkCheck:
    """One chunk and every segment that a rank has in it."""

    chunk: ChunkRef
    segments: tuple[SegmentCheck, ...]

    def identity(self) -> bytes:
        """16 bytes, equal where another rank's manifest asks for the same check."""
        places = [
            (item.segment.offset, item.segment.size_bytes, item.segment.codec, item.raw_bytes, item.segment.fingerprint)
            for item in self.segments
        ]
        return fingerprint(repr((self.chunk.digest, sorted(places))).encode())


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage in one chunk. `segment` is None where no segment that the rank uses is hit."""

    chunk: ChunkRef
    segment: SegmentCheck | None
    detail: str


def plan_chunk_checks(slices: Iterable[SliceRecord]) -> list[ChunkCheck]:
    """Every chunk that the slices name, once, in the order of first use."""
    by_chunk: dict[ChunkRef, list[SegmentCheck]] = {}
    for record in slices:
        raw_bytes = record.region.volume * dtype_named(record.dtype).item_bytes
        for number, (segment, size) in enumerate(zip(record.segments, segment_sizes(raw_bytes), strict=False)):
            by_chunk.setdefault(segment.chunk, []).append(SegmentCheck(record, number, segment, size))
    return [ChunkCheck(chunk, tuple(segments)) for chunk, segments in by_chunk.items()]


def check_chunk(check: ChunkCheck, data: memoryview) -> list[Finding]:
    """What is wrong with the stored bytes `data` of a chunk: nothing, its segments, or the chunk as a whole."""
    detail = _chunk_damage(check.chunk, data)
    scratch = memoryview(bytearray(max((item.raw_bytes for item in check.segments), default=0)))
    findings = [
        Finding(check.chunk, item, f"{found}; {detail}" if detail else found)
        for item in check.segments
        if (found := _segment_damage(item, data, scratch))
    ]
    if detail and not findings:
        findings.append(Finding(check.chunk, None, detail))
    return findings


def lost_chunk(check: ChunkCheck, detail: str) -> list[Finding]:
    """The findings for a chunk whose bytes cannot be had at all: one for each slice."""
    first: dict[tuple[str, Region], SegmentCheck] = {}
    for item in check.segments:
        first.setdefault((item.record.name, item.record.region), item)
    return [Finding(check.chunk, item, detail) for item in first.values()]


def _chunk_damage(chunk: ChunkRef, data: memoryview) -> str | None:
    try:
        verify_chunk(chunk, [data])
    except IntegrityError as exc:
        return str(exc)
    return None


def _segment_damage(item: SegmentCheck, data: memoryview, scratch: memoryview) -> str | None:
    segment = item.segment
    encoded = data[segment.offset : segment.offset + segment.size_bytes]
    if len(encoded) != segment.size_bytes:
        return f"the segment at byte {segment.offset} reaches past the chunk's end"
    out = scratch[: item.raw_bytes]
    try:
        decode_segment(segment.codec, encoded, out, item_bytes=dtype_named(item.record.dtype).item_bytes)
    except FormatError as exc:
        return f"the segment at byte {segment.offset} does not decode ({exc})"
    if fingerprint(out) != segment.fingerprint:
        return f"the segment at byte {segment.offset} does not have its fingerprint"
    return None


def count_segments(checks: Sequence[ChunkCheck]) -> int:
    """The segments in all checks."""
    return sum(len(check.segments) for check in checks)
