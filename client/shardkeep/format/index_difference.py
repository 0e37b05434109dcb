"""`compare_indexes`: what differs between two checkpoints, judged by the fingerprints of their segments. Pure.

Reads no tensor. Segments are compared where both have one of the same bytes of a tensor, however its slices were cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from shardkeep.format.columns import Flags, Ints, range_positions, starts_of
from shardkeep.format.index_columns import Index
from shardkeep.format.segment_columns import raw_segment_sizes, segment_counts
from shardkeep.format.segments import SEGMENT_BYTES, SliceKind
from shardkeep.format.tensor_table import TensorTable

_SEGMENTS_AT_ONCE = 1 << 20
_RANKS = 1 << 24
"""More than a world can have: a rank and a segment's number share one column."""


class Change(IntEnum):
    """What became of a tensor."""

    SAME = 0
    ADDED = 1
    REMOVED = 2
    CHANGED = 3
    RESHAPED = 4
    """Another dtype or shape."""
    RECUT = 5
    """Of the same dtype and shape, but cut so that fingerprints cannot tell whether it changed."""


@dataclass(frozen=True, slots=True, eq=False)
class IndexDifference:
    """The tensors that are not the same, by name: row i is `names[i]`, in row `rows[i]` of `tensors`.

    `other_rows` are those of `other_tensors`; -1 stands for a tensor that the side does not have. `changed_bytes` are
    raw bytes not known to be the same: of a removed tensor the other's, else this one's.
    """

    tensors: TensorTable
    other_tensors: TensorTable
    names: tuple[str, ...]
    changes: Ints
    rows: Ints
    other_rows: Ints
    changed_bytes: Ints
    same: int
    same_bytes: int

    def count(self, change: Change) -> int:
        """How many tensors changed in this way."""
        return self.same if change is Change.SAME else int((self.changes == change).sum())


def compare_indexes(index: Index, other: Index) -> IndexDifference:
    """What `index` has and `other` has not, or has otherwise; seconds and some hundred MB for a million slices."""
    tensors, others = index.tensors, other.tensors
    other_rows = other.rows_of(tensors.names)
    sizes = _raw_bytes(tensors)
    changes = np.full(len(tensors), Change.ADDED, np.int64)
    changed_bytes = sizes.copy()
    shared = np.flatnonzero(other_rows >= 0)
    is_alike = _alike(tensors, others, shared, other_rows[shared])
    changes[shared[~is_alike]] = Change.RESHAPED
    comparable = shared[is_alike]
    changes[comparable], found = _compare_contents(index, other, comparable, other_rows[comparable])
    changed_bytes[comparable] = np.minimum(found, sizes[comparable])  # of buffers that differ by rank all are compared
    is_removed = np.ones(len(others), np.bool_)
    is_removed[other_rows[shared]] = False
    return _difference(index, other, changes, other_rows, changed_bytes, np.flatnonzero(is_removed))


def _difference(
    index: Index, other: Index, changes: Ints, other_rows: Ints, changed_bytes: Ints, removed: Ints
) -> IndexDifference:
    tensors, others = index.tensors, other.tensors
    rows = np.flatnonzero(changes != Change.SAME)
    names = [tensors.names[row] for row in rows.tolist()] + [others.names[row] for row in removed.tolist()]
    order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    absent = np.full(len(removed), -1, np.int64)
    gone = np.full(len(removed), Change.REMOVED, np.int64)
    return IndexDifference(
        tensors,
        others,
        tuple(names[row] for row in order.tolist()),
        np.concatenate((changes[rows], gone))[order],
        np.concatenate((rows, absent))[order],
        np.concatenate((other_rows[rows], removed))[order],
        np.concatenate((changed_bytes[rows], _raw_bytes(others)[removed]))[order],
        same=len(tensors) - len(rows),
        same_bytes=int(_raw_bytes(tensors).sum() - changed_bytes.sum()),
    )


def _raw_bytes(tensors: TensorTable) -> Ints:
    return tensors.shapes.volumes * tensors.item_bytes


def _alike(tensors: TensorTable, others: TensorTable, rows: Ints, other_rows: Ints) -> Flags:
    """Whether the tensors in `rows[i]` and `other_rows[i]` have one dtype and shape."""
    mine, theirs = tensors.shapes, others.shapes
    is_alike: Flags = tensors.dtype_codes[rows] == others.dtype_codes[other_rows]
    is_alike &= mine.ndims[rows] == theirs.ndims[other_rows]
    pairs = np.flatnonzero(is_alike)
    counts = mine.ndims[rows[pairs]]
    dims = mine.dims[range_positions(mine.dim_starts[rows[pairs]], counts)]
    other_dims = theirs.dims[range_positions(theirs.dim_starts[other_rows[pairs]], counts)]
    is_alike[np.repeat(pairs, counts)[dims != other_dims]] = False
    return is_alike


def _compare_contents(index: Index, other: Index, rows: Ints, other_rows: Ints) -> tuple[Ints, Ints]:
    """The change and the changed bytes of each pair of tensors that have one dtype and shape."""
    changes = np.zeros(len(rows), np.int64)
    changed_bytes = np.zeros(len(rows), np.int64)
    for batch in _batches(_segments_of(index, rows) + _segments_of(other, other_rows)):
        mine, theirs = _Side.of(index, rows[batch]), _Side.of(other, other_rows[batch])
        is_cut_alike = _cut_alike(mine, theirs, len(batch))
        for positions, compare in (
            (np.flatnonzero(is_cut_alike), _compare_in_order),
            (np.flatnonzero(~is_cut_alike), _compare_by_place),
        ):
            if len(positions):
                pairs = batch[positions]
                found = compare(_Side.of(index, rows[pairs]), _Side.of(other, other_rows[pairs]), len(pairs))
                changes[pairs], changed_bytes[pairs] = found
    is_value = index.tensors.kinds[rows] == SliceKind.VALUE  # its name says its content
    changes[is_value] = Change.SAME
    changed_bytes[is_value] = 0
    return changes, changed_bytes


def _segments_of(index: Index, rows: Ints) -> Ints:
    starts = index.lookup.segment_starts[index.lookup.tensor_starts]
    counts: Ints = starts[rows + 1] - starts[rows]
    return counts


def _batches(costs: Ints) -> Iterator[Ints]:
    """Runs of positions whose costs add up to little; one position alone may cost more."""
    ends = starts_of(costs)
    start = 0
    while start < len(costs):
        stop = int(np.searchsorted(ends, ends[start] + _SEGMENTS_AT_ONCE, side="right")) - 1
        stop = max(start + 1, min(stop, len(costs)))
        yield np.arange(start, stop, dtype=np.int64)
        start = stop


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """The slices of some tensors of one index. `pair` numbers the tensors from 0.

    `variant` is the rank of a slice that shares its region with another (a buffer that differs by rank), else 0.
    """

    index: Index
    slices: Ints
    pair: Ints
    variant: Ints
    is_repeated: Flags

    @staticmethod
    def of(index: Index, rows: Ints) -> _Side:
        """The slices of the tensors in `rows`."""
        starts = index.lookup.tensor_starts
        counts = starts[rows + 1] - starts[rows]
        slices = range_positions(starts[rows], counts)
        begins = index.lookup.starts_region
        ends = np.append(begins[1:], True)
        is_repeated: Flags = ~(begins & ends)[slices]
        variant = np.where(is_repeated, index.ranks[slices], 0)
        return _Side(index, slices, np.repeat(np.arange(len(rows), dtype=np.int64), counts), variant, is_repeated)

    @property
    def raw_bytes(self) -> Ints:
        """Of each slice."""
        return self.index.lookup.raw_bytes[self.slices]

    def segments(self) -> _Segments:
        """Its segments, slice by slice."""
        counts = segment_counts(self.raw_bytes)
        rows = range_positions(self.index.lookup.segment_starts[self.slices], counts)
        of = np.repeat(np.arange(len(self.slices), dtype=np.int64), counts)
        number = np.arange(len(of), dtype=np.int64) - starts_of(counts)[:-1][of]
        words = self.index.fingerprints[rows].view(np.uint64).reshape(-1, 2)
        return _Segments(of, number, raw_segment_sizes(self.raw_bytes, counts), words)


@dataclass(frozen=True, slots=True, eq=False)
class _Segments:
    """`of` is the position of each segment's slice, `number` its place in it, `words` its fingerprint."""

    of: Ints
    number: Ints
    raw_bytes: Ints
    words: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]


def _cut_alike(mine: _Side, theirs: _Side, pairs: int) -> Flags:
    """Whether both sides of each pair consist of the same regions, for the same ranks where these matter."""
    counts, other_counts = (np.bincount(side.pair, minlength=pairs) for side in (mine, theirs))
    is_alike: Flags = counts == other_counts
    here, there = is_alike[mine.pair], is_alike[theirs.pair]
    slices, other_slices = mine.slices[here], theirs.slices[there]
    boxes, other_boxes = mine.index.boxes.take(slices), theirs.index.boxes.take(other_slices)
    differs = (boxes.first != other_boxes.first) | (boxes.last != other_boxes.last)
    differs |= mine.variant[here] != theirs.variant[there]
    is_alike[mine.pair[here][differs]] = False
    return is_alike


def _compare_in_order(mine: _Side, theirs: _Side, pairs: int) -> tuple[Ints, Ints]:
    """Of pairs that are cut alike: their segments correspond one by one."""
    segments, others = mine.segments(), theirs.segments()
    differs = (segments.words != others.words).any(axis=1)
    changed_bytes = _sums(mine.pair[segments.of], np.where(differs, segments.raw_bytes, 0), pairs)
    return np.where(changed_bytes > 0, np.int64(Change.CHANGED), np.int64(Change.SAME)), changed_bytes


def _compare_by_place(mine: _Side, theirs: _Side, pairs: int) -> tuple[Ints, Ints]:
    """Of pairs that are cut otherwise: segments correspond that hold the same bytes of the tensor."""
    segments, others = mine.segments(), theirs.segments()
    here, there = _matches(_places(mine, segments), _places(theirs, others))
    is_same = np.zeros(len(segments.of), np.bool_)
    equal = (segments.words[here] == others.words[there]).all(axis=1)
    is_same[here[equal]] = True
    pair = mine.pair[segments.of]
    changed_bytes = _sums(pair, np.where(is_same, 0, segments.raw_bytes), pairs)
    is_unknown = changed_bytes > 0
    is_unmatched = np.ones(len(others.of), np.bool_)
    is_unmatched[there] = False
    is_unknown[theirs.pair[others.of[is_unmatched]]] = True
    is_changed = np.zeros(pairs, np.bool_)
    is_changed[pair[here[~equal]]] = True
    for side in (mine, theirs):  # another set of ranks that differ is a change, not a cut
        repeated = np.zeros(pairs, np.bool_)
        repeated[side.pair[side.is_repeated]] = True
        is_changed |= repeated & is_unknown
    changes = np.where(is_unknown, np.int64(Change.RECUT), np.int64(Change.SAME))
    changes[is_changed] = Change.CHANGED
    return changes, changed_bytes


def _places(side: _Side, segments: _Segments) -> tuple[Ints, Ints, Ints, Ints]:
    """Columns that are equal for segments of the same bytes of a pair: pair, start, length, and what tells variants.

    The bytes of a slice that is a run of its tensor's have a place there; those of any other box only within the box.
    """
    index = side.index
    boxes = index.boxes.take(side.slices)
    item_bytes = index.tensors.item_bytes[boxes.tensor]
    is_run = (boxes.last - boxes.first + 1) * item_bytes == side.raw_bytes
    of, is_in_run = segments.of, is_run[segments.of]
    start = boxes.first[of] * item_bytes[of] + np.where(is_in_run, segments.number * SEGMENT_BYTES, 0)
    length = np.where(is_in_run, segments.raw_bytes, -1 - boxes.last[of])
    code = np.where(is_in_run, 0, segments.number) * _RANKS + side.variant[of]
    return side.pair[of], start, length, code


def _matches(mine: tuple[Ints, ...], theirs: tuple[Ints, ...]) -> tuple[Ints, Ints]:
    """Rows of both sides with equal columns; within a side no row repeats."""
    count = len(mine[0])
    columns = [np.concatenate(both) for both in zip(mine, theirs, strict=True)]
    order = np.lexsort(tuple(reversed(columns)))
    is_match = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in columns:
        ordered = column[order]
        is_match &= ordered[1:] == ordered[:-1]
    first, second = order[:-1][is_match], order[1:][is_match]
    return np.minimum(first, second), np.maximum(first, second) - count


def _sums(pair: Ints, values: Ints, pairs: int) -> Ints:
    """The sum of values by pair; `pair` ascends."""
    totals = starts_of(values)
    ends = np.searchsorted(pair, np.arange(pairs), side="right")
    begins = np.searchsorted(pair, np.arange(pairs), side="left")
    sums: Ints = totals[ends] - totals[begins]
    return sums
