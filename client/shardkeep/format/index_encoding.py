"""Indexes as bytes: sections for tensors, slices, fingerprints, segments and chunks, each compressed on its own."""

from __future__ import annotations

import msgspec
import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.boxes import Boxes, corner_volumes, corners_of, element_bases
from shardkeep.format.buffers import Buffer
from shardkeep.format.chunk_table import check_places
from shardkeep.format.columns import (
    Ints,
    pack_signed,
    pack_unsigned,
    unpack_bytes,
    unpack_signed,
    unpack_unsigned,
)
from shardkeep.format.container import Container, pack_container
from shardkeep.format.fingerprints import FINGERPRINT_BYTES
from shardkeep.format.index_columns import Index, make_lookup
from shardkeep.format.manifest_checks import MAX_STEP, MAX_WORLD_SIZE
from shardkeep.format.segment_columns import check_fingerprints, raw_segment_sizes, segment_counts
from shardkeep.format.stored_columns import (
    StoredChunks,
    StoredPlaces,
    decode_map,
    load_chunks,
    load_places,
    store_chunks,
    store_places,
)
from shardkeep.format.tensor_table import (
    StoredTensors,
    TensorTable,
    load_tensors,
    pack_texts,
    store_tensors,
    unpack_texts,
)

INDEX_MAGIC = b"SKix"
MAX_INDEX_RAW_BYTES = 16 << 30
"""Uncompressed. 3 million slices of a segment each take about 150 MB."""

_LEVEL = 1


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    world_size: int
    step: int
    tensors: StoredTensors
    slice_counts: memoryview
    divergent_buffers: memoryview


class _StoredSlices(msgspec.Struct, forbid_unknown_fields=True):
    gap: memoryview
    extent: memoryview
    rank: memoryview


_HEAD = msgspec.msgpack.Decoder(_Head)
_SLICES = msgspec.msgpack.Decoder(_StoredSlices)
_PLACES = msgspec.msgpack.Decoder(StoredPlaces)
_CHUNKS = msgspec.msgpack.Decoder(StoredChunks)


def encode_index(index: Index) -> bytes:
    """The stored bytes of an index without problems."""
    lookup, boxes = index.lookup, index.boxes
    extents = boxes.last - boxes.first
    ends = np.zeros(len(boxes), np.int64)
    ends[1:] = (lookup.keys + extents)[:-1] + 1
    head = _Head(
        world_size=index.world_size,
        step=index.step,
        tensors=store_tensors(index.tensors),
        slice_counts=memoryview(pack_unsigned(np.diff(lookup.tensor_starts))),
        divergent_buffers=memoryview(pack_texts(index.divergent_buffers)),
    )
    slices = _StoredSlices(
        gap=memoryview(pack_signed(lookup.keys - ends)),
        extent=memoryview(pack_unsigned(extents)),
        rank=memoryview(pack_unsigned(index.ranks)),
    )
    sections: list[Buffer] = [msgspec.msgpack.encode(head), msgspec.msgpack.encode(slices)]
    sections.append(index.fingerprints.reshape(-1).data)
    sections.append(msgspec.msgpack.encode(store_places(index.places)))
    sections.append(msgspec.msgpack.encode(store_chunks(index.chunk_table)))
    return pack_container(INDEX_MAGIC, sections, level=_LEVEL)


def decode_index(data: Buffer) -> Index:
    """The index of these bytes, its columns checked. FormatError, or VersionTooNew, for anything else.

    That slices are disjoint and cover their tensors was checked before the index was written, not here. Arrays may
    be views of `data`.
    """
    container = Container(data, magic=INDEX_MAGIC, section_count=5, max_raw_bytes=MAX_INDEX_RAW_BYTES)
    head = decode_map(_HEAD, container.section(0), "index head")
    if not 0 < head.world_size <= MAX_WORLD_SIZE or not 0 <= head.step <= MAX_STEP:
        raise FormatError(f"world size {head.world_size} or step {head.step} is out of range")
    tensors = load_tensors(head.tensors)
    boxes, ranks = _load_slices(container.section(1), head, tensors)
    raw_bytes = _volumes(tensors, boxes) * tensors.item_bytes[boxes.tensor]
    counts = segment_counts(raw_bytes)
    fingerprints = unpack_bytes(container.section(2), None, FINGERPRINT_BYTES, "fingerprints")
    check_fingerprints(fingerprints, counts)
    chunks = load_chunks(decode_map(_CHUNKS, container.section(4), "chunk table"))
    places = load_places(decode_map(_PLACES, container.section(3), "segment columns"))
    check_places(places, raw_segment_sizes(raw_bytes, counts), chunks)
    divergent = unpack_texts(head.divergent_buffers, "divergent buffers")
    return Index(
        head.world_size,
        head.step,
        tensors,
        boxes,
        ranks,
        fingerprints,
        places,
        chunks,
        divergent,
        make_lookup(tensors, boxes, raw_bytes),
    )


def decode_tensor_table(data: Buffer) -> TensorTable:
    """Only the tensors of a stored index: names, dtypes, kinds and shapes, without reading the rest."""
    container = Container(data, magic=INDEX_MAGIC, section_count=5, max_raw_bytes=MAX_INDEX_RAW_BYTES)
    return load_tensors(decode_map(_HEAD, container.section(0), "index head").tensors)


def _load_slices(section: memoryview, head: _Head, tensors: TensorTable) -> tuple[Boxes, Ints]:
    stored = decode_map(_SLICES, section, "slice columns")
    extents = unpack_unsigned(stored.extent, None, "slice extents")
    counts = unpack_unsigned(head.slice_counts, len(tensors), "slice counts")
    if int(counts.astype(object).sum()) != len(extents):
        raise FormatError(f"{len(extents)} slices are stored, not as many as are counted")
    steps = unpack_signed(stored.gap, len(extents), "slice gaps")
    steps[1:] += extents[:-1] + 1
    keys = np.cumsum(steps)
    tensor = np.repeat(np.arange(len(tensors), dtype=np.int64), counts)
    first = keys - element_bases(tensors.shapes)[tensor]
    last = first + extents
    is_inside = (first >= 0) & (last >= first) & (last < tensors.shapes.volumes[tensor])
    if not is_inside.all():
        raise FormatError(f"slice {int(np.flatnonzero(~is_inside)[0])} does not lie within its tensor")
    ranks = unpack_unsigned(stored.rank, len(extents), "slice ranks")
    if len(ranks) and int(ranks.max()) >= head.world_size:
        raise FormatError(f"a slice is of rank {int(ranks.max())} in a world of {head.world_size}")
    _check_order(keys, last, ranks)
    return Boxes(tensor, first, last), ranks


def _check_order(keys: Ints, last: Ints, ranks: Ints) -> None:
    same_key = keys[1:] == keys[:-1]
    same_box = same_key & (last[1:] == last[:-1])
    is_sorted = (keys[1:] > keys[:-1]) | (same_key & (last[1:] > last[:-1])) | (same_box & (ranks[1:] > ranks[:-1]))
    if not is_sorted.all():
        raise FormatError("slices are not sorted by tensor, region and rank, or repeat")


def _volumes(tensors: TensorTable, boxes: Boxes) -> Ints:
    corners = corners_of(tensors.shapes, boxes)
    if len(corners.sizes) and int(corners.sizes.min()) < 1:
        raise FormatError("first and last element of a slice do not span a box")
    return corner_volumes(corners)
