"""Many regions at once: each box is its tensor's row and the row-major positions of its first and last element.

Inside a shape those two numbers say everything about a box, sort like its offsets do, and make ranges of boxes
searchable; offsets and sizes are worked out from them where needed. Empty boxes have no such form and are not here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.columns import Flags, Ints, range_positions, starts_of
from shardkeep.format.tensor_table import Shapes


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Non-empty boxes: `first[i]` and `last[i]` are positions in the row-major elements of tensor `tensor[i]`."""

    tensor: Ints
    first: Ints
    last: Ints

    def __len__(self) -> int:
        return len(self.tensor)

    def take(self, rows: Ints | Flags) -> Boxes:
        """The boxes of some rows."""
        return Boxes(self.tensor[rows], self.first[rows], self.last[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Corners:
    """Offsets and sizes of boxes, one box after the other: box i has the entries `starts[i]` to `starts[i + 1]`."""

    starts: Ints
    offsets: Ints
    sizes: Ints

    def region_columns(self, row: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Offsets and sizes of one box."""
        part = slice(int(self.starts[row]), int(self.starts[row + 1]))
        return tuple(self.offsets[part].tolist()), tuple(self.sizes[part].tolist())


def check_corners(shapes: Shapes, tensor: Ints, offsets: Ints, sizes: Ints) -> Corners:
    """Offsets and sizes with one entry per dimension of each row's tensor; FormatError if a box leaves its shape."""
    ndims = shapes.ndims[tensor]
    starts = starts_of(ndims)
    if not len(offsets) == len(sizes) == int(starts[-1]):
        raise FormatError(f"{len(offsets)} offsets and {len(sizes)} sizes are given for {int(starts[-1])} dimensions")
    dims = shapes.dims[range_positions(shapes.dim_starts[tensor], ndims)]
    is_inside = (offsets >= 0) & (sizes >= 0) & (offsets <= dims) & (sizes <= dims - offsets)
    if not is_inside.all():
        row = int(np.searchsorted(starts, int(np.flatnonzero(~is_inside)[0]), side="right")) - 1
        raise FormatError(f"region {row} does not lie within the shape of its tensor")
    return Corners(starts, offsets, sizes)


def corner_volumes(corners: Corners) -> Ints:
    """The number of elements of each box, empty ones included."""
    counts = np.diff(corners.starts)
    if len(counts) and int(counts.min()) == int(counts.max()) > 0:
        uniform: Ints = corners.sizes.reshape(len(counts), -1).prod(axis=1)
        return uniform
    volumes = np.ones(len(counts), np.int64)
    for axis in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > axis)
        volumes[rows] *= corners.sizes[corners.starts[rows] + axis]
    return volumes


def boxes_of(shapes: Shapes, tensor: Ints, corners: Corners) -> Boxes:
    """The boxes of corners that are all non-empty."""
    strides = shapes.strides[range_positions(shapes.dim_starts[tensor], shapes.ndims[tensor])]
    first = run_sums(corners.offsets * strides, corners.starts)
    return Boxes(tensor, first, first + run_sums((corners.sizes - 1) * strides, corners.starts))


def corners_of(shapes: Shapes, boxes: Boxes) -> Corners:
    """Offsets and sizes; a size of zero or less tells that first and last do not span a box."""
    counts = shapes.ndims[boxes.tensor]
    starts = starts_of(counts)
    present = np.flatnonzero(np.bincount(counts)).tolist()
    if len(present) == 1:
        offsets, sizes = _corner_matrices(shapes, boxes, present[0])
        return Corners(starts, offsets.reshape(-1), sizes.reshape(-1))
    offsets = np.empty(int(starts[-1]), np.int64)
    sizes = np.empty(int(starts[-1]), np.int64)
    for ndim in present:
        rows = np.flatnonzero(counts == ndim)
        positions = starts[rows][:, None] + np.arange(ndim)
        offsets[positions], sizes[positions] = _corner_matrices(shapes, boxes.take(rows), ndim)
    return Corners(starts, offsets, sizes)


def element_bases(shapes: Shapes) -> Ints:
    """Where each tensor's elements begin when all tensors lie one after the other: base + first sorts all boxes.

    FormatError if that would not fit 62 bits.
    """
    if float(shapes.volumes.astype(np.float64).sum()) > 2.0**62:
        raise FormatError("the tensors together have more than 2**62 elements")
    return starts_of(shapes.volumes)[:-1]


def _corner_matrices(shapes: Shapes, boxes: Boxes, ndim: int) -> tuple[Ints, Ints]:
    """Offsets and sizes of boxes whose tensors all have `ndim` dimensions; one row a box."""
    offsets = np.empty((len(boxes), ndim), np.int64)
    sizes = np.empty((len(boxes), ndim), np.int64)
    first, last = boxes.first, boxes.last
    for axis in range(ndim - 1):
        stride = shapes.strides[shapes.dim_starts[boxes.tensor] + axis]
        low, first = _divide(first, stride)
        high, last = _divide(last, stride)
        offsets[:, axis] = low
        sizes[:, axis] = high - low + 1
    if ndim:
        offsets[:, -1] = first
        sizes[:, -1] = last - first + 1
    return offsets, sizes


def _divide(position: Ints, stride: Ints) -> tuple[Ints, Ints]:
    # Unsigned division is about twice as fast in numpy: it has no sign to look at.
    index = (position.view(np.uint64) // stride.view(np.uint64)).view(np.int64)
    return index, position - index * stride


def run_sums(values: Ints, starts: Ints) -> Ints:
    """The sum of each run; 0 for an empty one. Wrap-around in the running total cancels."""
    totals = starts_of(values)
    return totals[starts[1:]] - totals[starts[:-1]]
