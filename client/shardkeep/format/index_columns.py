"""`Index`: the slices of a committed checkpoint, as columns over all ranks, with look-up by name."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardkeep.format.boxes import Boxes, corners_of, element_bases
from shardkeep.format.chunk_table import ChunkTable, Places
from shardkeep.format.codecs import Codec
from shardkeep.format.columns import Bytes, Flags, Ints, starts_of
from shardkeep.format.dtypes import dtype_coded
from shardkeep.format.names import join_name, plain_text
from shardkeep.format.regions import Region
from shardkeep.format.segment_columns import segment_counts
from shardkeep.format.segments import SegmentRef, SliceKind
from shardkeep.format.tensor_table import Shapes, TensorTable

_MANY_SLICES = 8
_WIDE = 4
"""Slices whose extents add up to more than so many times their tensor overlap in row-major order."""


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A slice that is stored: its region, the rank that stored it, and its segments."""

    region: Region
    rank: int
    segments: tuple[SegmentRef, ...]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor: `raw_bytes` is its full size, `slices` what is stored of it, in order of region and rank."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    kind: SliceKind
    raw_bytes: int
    slices: tuple[StoredSlice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class IndexLookup:
    """What searching needs, derived from the other columns.

    `tensor_starts[t]` is the first slice of tensor t; `segment_starts[s]` the first segment of slice s. `keys` sort all
    slices: `bases[tensor] + first`. `max_extents[t]` bounds `last - first` over the slices of tensor t. `starts_region`
    is False for a slice with the region of the one before it (the same buffer, kept for another rank).
    """

    tensor_starts: Ints
    segment_starts: Ints
    raw_bytes: Ints
    bases: Ints
    keys: Ints
    is_spanned: Flags
    spans: Ints
    max_extents: Ints
    starts_region: Flags


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """All stored slices of a checkpoint, sorted by tensor name, region (first, then last element) and rank.

    No witnesses, no empty regions; of equal replicas the lowest rank's. `ranks[s]` is the rank that stored slice s.
    `fingerprints` and `places` have one row for each segment, slice by slice. `divergent_buffers` names buffers that
    differ between ranks: each rank's own is kept.
    """

    world_size: int
    step: int
    tensors: TensorTable
    boxes: Boxes
    ranks: Ints
    fingerprints: Bytes
    places: Places
    chunk_table: ChunkTable
    divergent_buffers: tuple[str, ...]
    lookup: IndexLookup

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """All names, ascending by code point; also of tensors without elements."""
        return self.tensors.names

    def find(self, name: str) -> int | None:
        """The row of the tensor with exactly this name, or None. Binary search."""
        row = bisect_left(self.tensors.names, name)
        return row if row < len(self.tensors) and self.tensors.names[row] == name else None

    def rows_of(self, names: Sequence[str]) -> Ints:
        """The row of each name, -1 where there is none."""
        if len(names) * 16 < len(self.tensors):
            return np.array([-1 if row is None else row for row in map(self.find, names)], np.int64)
        rows = dict(zip(self.tensors.names, range(len(self.tensors)), strict=True))
        return np.array([rows.get(name, -1) for name in names], np.int64)

    def find_plain(self, text: str) -> tuple[str, ...]:
        """The names whose plain text is `text`; a look at all names, for lenient look-up by hand."""
        return tuple(name for name in self.tensors.names if plain_text(name) == text)

    def names_with_prefix(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The names whose first parts are `parts`, the name of exactly these parts included; all for no parts."""
        if not parts:
            return self.tensors.names
        names, prefix = self.tensors.names, join_name(parts)
        low, high = bisect_left(names, prefix + "."), bisect_left(names, prefix + "/")  # "/" follows "."
        exact = () if self.find(prefix) is None else (prefix,)
        return exact + names[low:high]

    def tensor(self, name: str) -> TensorEntry:
        """One tensor with its stored slices as objects; KeyError if there is none of this name."""
        row = self.find(name)
        if row is None:
            raise KeyError(name)
        shape = self.tensors.shapes.shape(row)
        return TensorEntry(
            name,
            dtype_coded(int(self.tensors.dtype_codes[row])).name,
            shape,
            SliceKind(int(self.tensors.kinds[row])),
            int(self.tensors.shapes.volumes[row] * self.tensors.item_bytes[row]),
            self._stored_slices(row),
        )

    def _stored_slices(self, row: int) -> tuple[StoredSlice, ...]:
        rows = np.arange(self.lookup.tensor_starts[row], self.lookup.tensor_starts[row + 1])
        corners = corners_of(self.tensors.shapes, self.boxes.take(rows))
        return tuple(
            StoredSlice(Region(*corners.region_columns(position)), int(self.ranks[slice_]), self._segments(slice_))
            for position, slice_ in enumerate(rows.tolist())
        )

    def _segments(self, slice_: int) -> tuple[SegmentRef, ...]:
        starts = self.lookup.segment_starts
        return tuple(
            SegmentRef(
                self.chunk_table.row(int(self.places.chunk[row])),
                int(self.places.offset[row]),
                int(self.places.size[row]),
                Codec(int(self.places.codec[row])),
                self.fingerprints[row].tobytes(),
            )
            for row in range(int(starts[slice_]), int(starts[slice_ + 1]))
        )


def make_lookup(tensors: TensorTable, boxes: Boxes, raw_bytes: Ints) -> IndexLookup:
    """The derived columns for sorted `boxes` that hold `raw_bytes` each."""
    bases = element_bases(tensors.shapes)
    keys = bases[boxes.tensor] + boxes.first
    tensor_starts = starts_of(np.bincount(boxes.tensor, minlength=len(tensors)).astype(np.int64))
    max_extents = np.zeros(len(tensors), np.int64)
    has_slices = tensor_starts[1:] > tensor_starts[:-1]
    if len(boxes):
        max_extents[has_slices] = np.maximum.reduceat(boxes.last - boxes.first, tensor_starts[:-1][has_slices])
    is_spanned, spans = _spanned_axes(tensors.shapes, boxes, tensor_starts, max_extents)
    starts_region = np.ones(len(boxes), np.bool_)
    starts_region[1:] = (keys[1:] != keys[:-1]) | (boxes.last[1:] != boxes.last[:-1])
    segment_starts = starts_of(segment_counts(raw_bytes))
    return IndexLookup(
        tensor_starts, segment_starts, raw_bytes, bases, keys, is_spanned, spans, max_extents - spans, starts_region
    )


def _spanned_axes(shapes: Shapes, boxes: Boxes, tensor_starts: Ints, max_extents: Ints) -> tuple[Flags, Ints]:
    """`is_spanned` and `spans`, looked for where slices reach over so much that a search would meet most of them."""
    is_spanned = np.zeros(len(shapes.dims), np.bool_)
    spans = np.zeros(len(shapes), np.int64)
    counts = np.diff(tensor_starts)
    reach = (max_extents + 1.0) * counts
    for tensor in np.flatnonzero((counts >= _MANY_SLICES) & (reach > _WIDE * shapes.volumes)).tolist():
        axes = slice(int(shapes.dim_starts[tensor]), int(shapes.dim_starts[tensor + 1]))
        dims = shapes.dims[axes]
        rows = np.arange(tensor_starts[tensor], tensor_starts[tensor + 1])
        sizes = corners_of(shapes, boxes.take(rows)).sizes.reshape(len(rows), len(dims))
        is_spanned[axes] = (sizes == dims).all(axis=0)
        spans[tensor] = ((dims - 1) * shapes.strides[axes])[is_spanned[axes]].sum()
    return is_spanned, spans
