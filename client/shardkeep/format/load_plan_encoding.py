"""Load plans as bytes."""

from __future__ import annotations

import msgspec
import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.boxes import Corners, check_corners
from shardkeep.format.buffers import Buffer
from shardkeep.format.chunk_table import check_places
from shardkeep.format.columns import Ints, pack_unsigned, range_positions, unpack_bytes, unpack_unsigned
from shardkeep.format.container import Container, pack_container
from shardkeep.format.dtypes import ITEM_BYTES_BY_CODE
from shardkeep.format.fingerprints import FINGERPRINT_BYTES
from shardkeep.format.load_plan_columns import LoadPlan, PieceColumns, needed_bytes, needed_segments
from shardkeep.format.names import check_name
from shardkeep.format.segments import SEGMENT_BYTES
from shardkeep.format.stored_columns import (
    StoredChunks,
    StoredPlaces,
    decode_map,
    load_chunks,
    load_places,
    store_chunks,
    store_places,
)
from shardkeep.format.tensor_table import Shapes, make_shapes, pack_texts, unpack_texts

PLAN_MAGIC = b"SKpl"
MAX_PLAN_RAW_BYTES = 1 << 30
MAX_PIECES = 1 << 24


class _StoredPlan(msgspec.Struct, forbid_unknown_fields=True):
    dtypes: memoryview
    ndims: memoryview
    dims: memoryview
    piece_items: memoryview
    offsets: memoryview
    sizes: memoryview
    source_offsets: memoryview
    source_sizes: memoryview
    first_segments: memoryview
    segment_counts: memoryview
    places: StoredPlaces
    fingerprints: memoryview
    raw_sizes: memoryview
    raw_starts: memoryview
    chunks: StoredChunks
    unknown: memoryview


_DECODER = msgspec.msgpack.Decoder(_StoredPlan)


def encode_load_plan(plan: LoadPlan) -> bytes:
    """The plan as bytes."""
    pieces = plan.piece_columns
    stored = _StoredPlan(
        dtypes=memoryview(pack_unsigned(plan.dtype_codes)),
        ndims=memoryview(pack_unsigned(plan.shapes.ndims)),
        dims=memoryview(pack_unsigned(plan.shapes.dims)),
        piece_items=memoryview(pack_unsigned(pieces.item)),
        offsets=memoryview(pack_unsigned(pieces.corners.offsets)),
        sizes=memoryview(pack_unsigned(pieces.corners.sizes)),
        source_offsets=memoryview(pack_unsigned(pieces.source.offsets)),
        source_sizes=memoryview(pack_unsigned(pieces.source.sizes)),
        first_segments=memoryview(pack_unsigned(pieces.first_segment)),
        segment_counts=memoryview(pack_unsigned(pieces.segment_count)),
        places=store_places(plan.places),
        fingerprints=memoryview(plan.fingerprints.tobytes()),
        raw_sizes=memoryview(pack_unsigned(plan.raw_sizes)),
        raw_starts=memoryview(pack_unsigned(plan.raw_starts)),
        chunks=store_chunks(plan.chunk_table),
        unknown=memoryview(pack_texts(plan.unknown)),
    )
    return pack_container(PLAN_MAGIC, [msgspec.msgpack.encode(stored)], level=1)


def decode_load_plan(data: Buffer) -> LoadPlan:
    """The plan of these bytes, its columns checked; `LoadPlan.check` compares it with the request.

    FormatError, or VersionTooNew, for anything else.
    """
    container = Container(data, magic=PLAN_MAGIC, section_count=1, max_raw_bytes=MAX_PLAN_RAW_BYTES)
    stored = decode_map(_DECODER, container.section(0), "load plan")
    dtype_codes = unpack_unsigned(stored.dtypes, None, "dtypes")
    ndims = unpack_unsigned(stored.ndims, len(dtype_codes), "ndims")
    shapes = make_shapes(ndims, unpack_unsigned(stored.dims, None, "dims"))
    if int(dtype_codes.max(initial=0)) > 255 or (ITEM_BYTES_BY_CODE[dtype_codes[dtype_codes > 0]] == 0).any():
        raise FormatError("a load plan has an unknown dtype code")
    chunks = load_chunks(stored.chunks)
    places = load_places(stored.places)
    raw_sizes = unpack_unsigned(stored.raw_sizes, len(places), "raw sizes")
    if int(raw_sizes.max(initial=0)) > SEGMENT_BYTES:
        raise FormatError(f"a segment is larger than {SEGMENT_BYTES} bytes")
    check_places(places, raw_sizes, chunks)
    raw_starts = unpack_unsigned(stored.raw_starts, len(places), "raw starts")
    pieces = _load_pieces(stored, shapes)
    _check_segments(pieces, ITEM_BYTES_BY_CODE[dtype_codes[pieces.item]], raw_sizes, raw_starts)
    return LoadPlan(
        dtype_codes,
        shapes,
        pieces,
        places,
        unpack_bytes(stored.fingerprints, len(places), FINGERPRINT_BYTES, "fingerprints"),
        raw_sizes,
        raw_starts,
        chunks,
        _load_unknown(stored),
    )


def _load_pieces(stored: _StoredPlan, shapes: Shapes) -> PieceColumns:
    item = unpack_unsigned(stored.piece_items, None, "piece items")
    if len(item) > MAX_PIECES:
        raise FormatError(f"a plan of {len(item)} pieces is above the limit of {MAX_PIECES}")
    if len(item) and (int(item.max()) >= len(shapes) or (np.diff(item) < 0).any()):
        raise FormatError("pieces are not sorted by item, or name an item that is not there")
    corners = _corners(stored.offsets, stored.sizes, shapes, item)
    source = _corners(stored.source_offsets, stored.source_sizes, shapes, item)
    is_inside = (corners.offsets >= source.offsets) & (corners.offsets + corners.sizes <= source.offsets + source.sizes)
    if not is_inside.all():
        raise FormatError("a piece does not lie within its slice")
    first = unpack_unsigned(stored.first_segments, len(item), "first segments")
    return PieceColumns(item, corners, source, first, unpack_unsigned(stored.segment_counts, len(item), "counts"))


def _corners(offsets: Buffer, sizes: Buffer, shapes: Shapes, item: Ints) -> Corners:
    corners = check_corners(
        shapes, item, unpack_unsigned(offsets, None, "offsets"), unpack_unsigned(sizes, None, "sizes")
    )
    if len(corners.sizes) and int(corners.sizes.min()) < 1:
        raise FormatError("a piece is empty")
    return corners


def _check_segments(pieces: PieceColumns, item_bytes: Ints, raw_sizes: Ints, raw_starts: Ints) -> None:
    """Every piece must point at exactly the segments of its slice that hold its bytes."""
    if not len(pieces):
        return
    if not item_bytes.all():
        raise FormatError("a piece belongs to an unknown tensor")
    first, counts = needed_segments(*needed_bytes(pieces.corners, pieces.source, item_bytes))
    if not np.array_equal(counts, pieces.segment_count):
        raise FormatError("a piece does not name the segments that hold its bytes")
    if (pieces.first_segment > len(raw_sizes)).any() or (pieces.first_segment + counts > len(raw_sizes)).any():
        raise FormatError("a piece names segments that are not in the plan")
    if int(counts.astype(object).sum()) > MAX_PIECES * 4:
        raise FormatError("the pieces of a plan name too many segments")
    rows = range_positions(pieces.first_segment, counts)
    starts = range_positions(first, counts) * SEGMENT_BYTES
    source_bytes = _volumes(pieces.source) * item_bytes
    ends = np.minimum(starts + SEGMENT_BYTES, np.repeat(source_bytes, counts))
    if not np.array_equal(raw_starts[rows], starts) or not np.array_equal(raw_starts[rows] + raw_sizes[rows], ends):
        raise FormatError("a segment does not lie where its slice needs it")


def _volumes(corners: Corners) -> Ints:
    return make_shapes(np.diff(corners.starts), corners.sizes).volumes


def _load_unknown(stored: _StoredPlan) -> tuple[str, ...]:
    names = unpack_texts(stored.unknown, "unknown names")
    for name in names:
        check_name(name)
    return names
