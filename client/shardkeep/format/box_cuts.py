"""Overlaps among many boxes, by cutting them apart; see `coverage` for the idea."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardkeep.format.boxes import Boxes, Corners, corners_of
from shardkeep.format.columns import Flags, Ints, range_positions, starts_of
from shardkeep.format.tensor_table import Shapes

MAX_ROUNDS = 12
"""Rounds over all axes; each must cut something. Grids of flat ranges need two."""

MAX_PAIRS = 20_000_000
"""Pairs compared one by one, over all tensors: about two seconds."""

_PAIRS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Overlaps:
    """`pairs`: rows of two boxes that overlap, one pair a tensor. `too_complex`: tensors left undecided."""

    pairs: Ints
    pair_tensors: Ints
    too_complex: Ints

    def tensors(self) -> Ints:
        """Every tensor whose boxes are not known to be disjoint."""
        return np.concatenate((self.pair_tensors, self.too_complex))


def find_overlaps(shapes: Shapes, boxes: Boxes) -> Overlaps:
    """Overlaps among distinct boxes that are sorted by tensor and first element."""
    kept, group = _cut_linear(boxes, np.arange(len(boxes), dtype=np.int64), boxes.tensor)
    overlaps = _find_among(shapes, boxes.take(kept), _renumbered(group))
    return Overlaps(kept[overlaps.pairs], overlaps.pair_tensors, overlaps.too_complex)


def _find_among(shapes: Shapes, boxes: Boxes, group: Ints) -> Overlaps:
    """Overlaps within groups of boxes that the row-major order alone does not tell apart."""
    corners = corners_of(shapes, boxes)
    rows = np.arange(len(boxes), dtype=np.int64)
    found: list[Ints] = []
    for _ in range(MAX_ROUNDS):
        if not len(rows):
            break
        before = len(rows)
        for axis in range(int(shapes.ndims[boxes.tensor[rows]].max(initial=0))):
            rows, group = _cut_axis(shapes, boxes, corners, rows, group, axis)
        rows, group = _cut_linear(boxes, rows, group)
        rows, group = _drop_overlapping_neighbours(shapes, boxes, corners, rows, group, found)
        if len(rows) == before:
            break
    too_complex = _compare_pairs(shapes, boxes, corners, rows, group, found)
    pairs = np.concatenate(found) if found else np.empty((0, 2), np.int64)
    tensors, position = np.unique(boxes.tensor[pairs[:, 0]], return_index=True)
    return Overlaps(pairs[position], tensors, too_complex)


def _cut_linear(boxes: Boxes, rows: Ints, group: Ints) -> tuple[Ints, Ints]:
    """Cut along the row-major order. Rows ascend by group, then by first element."""
    return _cut(rows, group, boxes.first[rows], boxes.last[rows] + 1)


def _cut_axis(shapes: Shapes, boxes: Boxes, corners: Corners, rows: Ints, group: Ints, axis: int) -> tuple[Ints, Ints]:
    """Cut along one axis, where there is one; gives back rows sorted by group and first element."""
    has_axis = shapes.ndims[boxes.tensor[rows]] > axis
    is_everywhere = bool(has_axis.all())
    rows_here, group_here = (rows, group) if is_everywhere else (rows[has_axis], group[has_axis])
    low = corners.offsets[corners.starts[rows_here] + axis]
    if not ((low[1:] != low[:-1]) & (group_here[1:] == group_here[:-1])).any():
        return rows, group  # all boxes of each group begin at one place: nothing to cut
    order = _order(group_here, low)
    rows_here, group_here, low = rows_here[order], group_here[order], low[order]
    high = low + corners.sizes[corners.starts[rows_here] + axis]
    cut_rows, cut_group = _cut(rows_here, group_here, low, high)
    if not is_everywhere:
        # Numbers of the rows without this axis must stay apart from the new ones.
        cut_rows = np.concatenate((rows[~has_axis], cut_rows))
        cut_group = np.concatenate((group[~has_axis] + len(boxes) + 1, cut_group))
    # Row numbers ascend by tensor and first element, so sorting by them restores the row-major order.
    order = _order(cut_group, cut_rows)
    return cut_rows[order], _renumbered(cut_group[order])


def _order(group: Ints, within: Ints) -> Ints:
    """The order by group, then `within`; one sort where both fit one number."""
    span = int(within.max(initial=0)) + 1
    if float(span) * (int(group.max(initial=0)) + 1) < 2.0**62:
        return np.argsort(group * span + within, kind="stable")
    return np.lexsort((within, group))


def _cut(rows: Ints, group: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Split groups where every earlier box ends before `low`; drop boxes left alone. Sorted by group, then `low`."""
    if not len(rows):
        return rows, group
    is_cut = np.ones(len(rows) + 1, np.bool_)
    is_cut[1:-1] = (group[1:] != group[:-1]) | (low[1:] >= _running_maximum(group, high)[:-1])
    new_group: Ints = np.cumsum(is_cut[:-1], dtype=np.int64)
    is_left = ~(is_cut[:-1] & is_cut[1:])
    return rows[is_left], new_group[is_left]


def _running_maximum(group: Ints, high: Ints) -> Ints:
    """The running maximum of `high` within each run of equal groups."""
    number = _renumbered(group)
    span = int(high.max()) + 1
    if float(span) * (int(number[-1]) + 1) < 2.0**62:
        return _running_maximum_of(number * span, high)
    distinct, ranks = np.unique(high, return_inverse=True)
    maximum: Ints = distinct[_running_maximum_of(number * len(distinct), ranks)]
    return maximum


def _running_maximum_of(floor: Ints, high: Ints) -> Ints:
    """`floor` is constant within a group and steps up by more than any `high` from one group to the next."""
    running: Ints = np.maximum.accumulate(floor + high)
    return running - floor


def _renumbered(group: Ints) -> Ints:
    """Runs of equal groups as 0, 1, 2, ..."""
    numbers = np.zeros(len(group), np.int64)
    np.cumsum(group[1:] != group[:-1], out=numbers[1:])
    return numbers


def _overlap(shapes: Shapes, boxes: Boxes, corners: Corners, one: Ints, other: Ints) -> Flags:
    """Whether the boxes in rows `one[i]` and `other[i]`, of one tensor, have a common element."""
    ndims = shapes.ndims[boxes.tensor[one]]
    result = np.ones(len(one), np.bool_)
    for axis in range(int(ndims.max(initial=0))):
        pick = np.flatnonzero(ndims > axis)
        a, b = corners.starts[one[pick]] + axis, corners.starts[other[pick]] + axis
        low_a, low_b = corners.offsets[a], corners.offsets[b]
        result[pick] &= (low_a < low_b + corners.sizes[b]) & (low_b < low_a + corners.sizes[a])
    return result


def _drop_overlapping_neighbours(
    shapes: Shapes, boxes: Boxes, corners: Corners, rows: Ints, group: Ints, found: list[Ints]
) -> tuple[Ints, Ints]:
    """One overlap a tensor is enough to know: neighbours that overlap settle their tensor cheaply."""
    neighbours = np.flatnonzero(group[1:] == group[:-1])
    one, other = rows[neighbours], rows[neighbours + 1]
    is_overlap = _overlap(shapes, boxes, corners, one, other)
    if not is_overlap.any():
        return rows, group
    found.append(np.stack((one[is_overlap], other[is_overlap]), axis=1))
    is_open = ~np.isin(boxes.tensor[rows], boxes.tensor[one[is_overlap]])
    return rows[is_open], group[is_open]


def _compare_pairs(shapes: Shapes, boxes: Boxes, corners: Corners, rows: Ints, group: Ints, found: list[Ints]) -> Ints:
    """Compare what could not be cut apart; gives the tensors for which that would be too much."""
    if not len(rows):
        return np.empty(0, np.int64)
    number = _renumbered(group)
    first, stop = boxes.first[rows], boxes.last[rows] + 1
    distinct = np.unique(np.concatenate((first, stop)))
    span = len(distinct) + 1
    starts = number * span + np.searchsorted(distinct, first)
    # The rows after row i, of its group, that begin before row i ends.
    partners = np.searchsorted(starts, number * span + np.searchsorted(distinct, stop)) - np.arange(len(rows)) - 1
    cost = starts_of(partners)
    is_affordable = cost[1:] <= MAX_PAIRS
    too_complex = np.unique(boxes.tensor[rows[~is_affordable]])
    done = 0
    while done < len(rows) and is_affordable[done]:
        stop_row = max(done + 1, int(np.searchsorted(cost, cost[done] + _PAIRS_AT_ONCE, side="right")) - 1)
        stop_row = min(stop_row, int(is_affordable.sum()))
        batch = np.arange(done, stop_row, dtype=np.int64)
        one = rows[np.repeat(batch, partners[batch])]
        other = rows[range_positions(batch + 1, partners[batch])]
        is_overlap = _overlap(shapes, boxes, corners, one, other)
        found.append(np.stack((one[is_overlap], other[is_overlap]), axis=1))
        done = stop_row
    for pairs in found:
        too_complex = too_complex[~np.isin(too_complex, boxes.tensor[pairs[:, 0]])]
    return too_complex
