"""`LoadPlan`: for each requested region the stored pieces that make it up, and the segments that hold their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.boxes import Corners, boxes_of, check_corners, corner_volumes, run_sums
from shardkeep.format.chunk_table import ChunkTable, Places
from shardkeep.format.chunks import ChunkRef
from shardkeep.format.codecs import Codec
from shardkeep.format.columns import Bytes, Ints, range_positions
from shardkeep.format.coverage import find_coverage_problems
from shardkeep.format.dtypes import dtype_coded
from shardkeep.format.load_request import LoadRequest
from shardkeep.format.regions import Region
from shardkeep.format.segments import SEGMENT_BYTES
from shardkeep.format.tensor_table import Shapes, make_shapes


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """One segment to read: `size_bytes` at `offset` of `chunk`, decoding to `raw_bytes`.

    Those are the bytes of the source slice from `raw_start` on, its elements in row-major order.
    """

    chunk: ChunkRef
    offset: int
    size_bytes: int
    codec: Codec
    fingerprint: bytes
    raw_bytes: int
    raw_start: int


@dataclass(frozen=True, slots=True)
class PiecePlan:
    """`region` of item `item`'s tensor lies in the stored slice `source`, in these consecutive segments of it."""

    item: int
    region: Region
    source: Region
    segments: tuple[PlannedSegment, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PieceColumns:
    """Pieces by ascending item; `first_segment` and `segment_count` point into the plan's segments."""

    item: Ints
    corners: Corners
    source: Corners
    first_segment: Ints
    segment_count: Ints

    def __len__(self) -> int:
        return len(self.item)


@dataclass(frozen=True, slots=True, eq=False)
class LoadPlan:
    """The answer to a `LoadRequest`, item by item in its order.

    An item whose name is in `unknown` has dtype code 0. An item whose region does not fit the stored shape has dtype
    and shape but no pieces, so that the client can say what differs. Segments are listed once, however many pieces
    share one.
    """

    dtype_codes: Ints
    shapes: Shapes
    piece_columns: PieceColumns
    places: Places
    fingerprints: Bytes
    raw_sizes: Ints
    raw_starts: Ints
    chunk_table: ChunkTable
    unknown: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.dtype_codes)

    def dtype(self, item: int) -> str | None:
        """The stored dtype of an item's tensor, None if its name is unknown."""
        code = int(self.dtype_codes[item])
        return dtype_coded(code).name if code else None

    def shape(self, item: int) -> tuple[int, ...]:
        """The stored global shape of an item's tensor."""
        return self.shapes.shape(item)

    def chunks(self) -> tuple[ChunkRef, ...]:
        """Every chunk that a segment lies in, once."""
        return self.chunk_table.rows()

    def segments(self) -> list[PlannedSegment]:
        """All segments as objects, each once."""
        chunks = self.chunk_table.rows()
        return [
            PlannedSegment(chunks[chunk], offset, size, Codec(codec), fingerprint.tobytes(), raw_size, raw_start)
            for chunk, offset, size, codec, fingerprint, raw_size, raw_start in zip(
                self.places.chunk.tolist(),
                self.places.offset.tolist(),
                self.places.size.tolist(),
                self.places.codec.tolist(),
                self.fingerprints,
                self.raw_sizes.tolist(),
                self.raw_starts.tolist(),
                strict=True,
            )
        ]

    def pieces(self) -> Iterator[PiecePlan]:
        """The pieces as objects, by ascending item."""
        columns, segments = self.piece_columns, self.segments()
        rows = zip(columns.item.tolist(), columns.first_segment.tolist(), columns.segment_count.tolist(), strict=True)
        for row, (item, first, count) in enumerate(rows):
            yield PiecePlan(
                item,
                Region(*columns.corners.region_columns(row)),
                Region(*columns.source.region_columns(row)),
                tuple(segments[first : first + count]),
            )

    def check(self, request: LoadRequest) -> None:
        """FormatError unless this plan answers `request`: every known item's region is covered once, by its pieces."""
        if len(self) != len(request):
            raise FormatError(f"a plan for {len(self)} items answers a request of {len(request)}")
        unknown = {name for name, code in zip(request.names, self.dtype_codes.tolist(), strict=True) if not code}
        if unknown != set(self.unknown):
            raise FormatError(f"a plan calls {sorted(self.unknown)[:3]} unknown, but lacks {sorted(unknown)[:3]}")
        wanted = self._wanted_regions(request)
        sizes = make_shapes(
            np.array([region.ndim for region in wanted], np.int64),
            np.array([size for region in wanted for size in region.sizes], np.int64),
        )
        origins = np.array([offset for region in wanted for offset in region.offsets], np.int64)
        columns = self.piece_columns
        moves = origins[range_positions(sizes.dim_starts[columns.item], sizes.ndims[columns.item])]
        corners = check_corners(sizes, columns.item, columns.corners.offsets - moves, columns.corners.sizes)
        volumes = corner_volumes(corners)
        covered = np.zeros(len(self), np.int64)
        np.add.at(covered, columns.item, volumes)
        report = find_coverage_problems(sizes, boxes_of(sizes, columns.item, corners))
        if report.problems or not np.array_equal(covered, sizes.volumes):
            item = report.problems[0].tensor if report.problems else int(np.flatnonzero(covered != sizes.volumes)[0])
            raise FormatError(f"a plan does not cover {request.names[item]} once: {report.problems[:1]}")

    def _wanted_regions(self, request: LoadRequest) -> list[Region]:
        wanted = []
        for item, (name, region) in enumerate(zip(request.names, request.regions, strict=True)):
            if not self.dtype_codes[item]:
                wanted.append(Region((0,), (0,)))
                continue
            shape = self.shape(item)
            if region is not None and not region.within(shape):
                raise FormatError(f"{name}: {region} was asked for, but the stored shape is {shape}")
            wanted.append(Region.whole(shape) if region is None else region)
        return wanted


def needed_bytes(corners: Corners, source: Corners, item_bytes: Ints) -> tuple[Ints, Ints]:
    """The first and last byte, within its source slice, of each piece. Pieces lie within their sources."""
    inner = make_shapes(np.diff(source.starts), source.sizes)
    relative = Corners(source.starts, corners.offsets - source.offsets, corners.sizes)
    first = run_sums(relative.offsets * inner.strides, source.starts)
    last = first + run_sums((relative.sizes - 1) * inner.strides, source.starts)
    return first * item_bytes, (last + 1) * item_bytes - 1


def needed_segments(first_byte: Ints, last_byte: Ints) -> tuple[Ints, Ints]:
    """The first segment, within its slice, and the number of segments that hold these bytes."""
    first = first_byte // SEGMENT_BYTES
    return first, last_byte // SEGMENT_BYTES - first + 1
