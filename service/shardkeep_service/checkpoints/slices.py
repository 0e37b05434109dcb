"""The slices of one tensor as the index keeps them: region, the rank that stored it, and where the bytes are.

The index keeps no replicas: of equal slices the lowest rank's is listed, and of buffers that differ by rank each one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from shardkeep.format.boxes import corners_of
from shardkeep.format.codecs import Codec
from shardkeep.format.index import Index
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import Page, SliceInfo
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.index_cache import IndexCache
from shardkeep_service.checkpoints.reading import open_index
from shardkeep_service.cursors import bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.errors import Refusal
from shardkeep_service.service_context import ServiceContext

_LIST: Final = "slices"
LISTED_CHUNKS: Final = 32
"""Of one slice. One of 100 GB lies in thousands."""


def list_slices(
    context: ServiceContext,
    indexes: IndexCache,
    principal: Principal,
    checkpoint_id: str,
    tensor: str,
    *,
    limit: int,
    cursor: str | None,
) -> Page[SliceInfo]:
    """The stored slices of the tensor with exactly this name, in the order of their regions."""
    size = bounded_limit(limit)
    filters = {"checkpoint": checkpoint_id, "tensor": tensor}
    position = decode_cursor(cursor, _LIST, filters, (int,))
    index = open_index(context, indexes, principal, checkpoint_id)
    row = index.find(tensor)
    if row is None:
        raise Refusal(
            ErrorCode.UNKNOWN_TENSOR,
            f"checkpoint {checkpoint_id} has no tensor {tensor[:200]!r}; ask for its tensors to see their names",
        )
    first, end = int(index.lookup.tensor_starts[row]), int(index.lookup.tensor_starts[row + 1])
    start = min(max(first, first + position[0]), end) if position else first
    stop = min(start + size, end)
    following = encode_cursor(_LIST, filters, (stop - first,)) if stop < end else None
    return Page[SliceInfo](items=_slice_infos(index, start, stop), next_cursor=following)


def _slice_infos(index: Index, start: int, stop: int) -> list[SliceInfo]:
    rows = np.arange(start, stop)
    corners = corners_of(index.tensors.shapes, index.boxes.take(rows))
    return [_slice_info(index, int(row), *corners.region_columns(place)) for place, row in enumerate(rows)]


def _slice_info(index: Index, row: int, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> SliceInfo:
    starts = index.lookup.segment_starts
    segments = np.arange(starts[row], starts[row + 1])
    places = index.places.take(segments)
    chunks, first_use = np.unique(places.chunk, return_index=True)
    in_order = chunks[np.argsort(first_use)]
    return SliceInfo(
        rank=int(index.ranks[row]),
        offsets=list(offsets),
        sizes=list(sizes),
        raw_bytes=int(index.lookup.raw_bytes[row]),
        stored_bytes=int(places.size.sum()),
        segments=len(segments),
        codecs=[Codec(code).name.lower() for code in np.unique(places.codec).tolist()],
        chunks=[index.chunk_table.digests[chunk].tobytes().hex() for chunk in in_order[:LISTED_CHUNKS].tolist()],
        chunk_count=len(chunks),
    )
