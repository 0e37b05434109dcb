"""Regions: n-d boxes of a tensor, and flat row-major ranges expressed as boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True, order=True)
class Region:
    """A box, in elements: it starts at `offsets` and is `sizes` long in each dimension.

    A 0-d tensor has the one box `Region((), ())`, of volume 1. A box with a zero size is empty.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.offsets) != len(self.sizes):
            raise ValueError(f"offsets {self.offsets} and sizes {self.sizes} differ in length")
        if any(number < 0 for number in self.offsets) or any(number < 0 for number in self.sizes):
            raise ValueError(f"a region has no negative numbers: offsets {self.offsets}, sizes {self.sizes}")

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Region:
        """All of a tensor of this shape."""
        return cls((0,) * len(shape), tuple(shape))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.sizes)

    @property
    def ends(self) -> tuple[int, ...]:
        """The first index after the box, in each dimension."""
        return tuple(offset + size for offset, size in zip(self.offsets, self.sizes, strict=True))

    @property
    def volume(self) -> int:
        """The number of elements."""
        return prod(self.sizes)

    @property
    def is_empty(self) -> bool:
        """Whether there is no element inside."""
        return 0 in self.sizes

    def intersection(self, other: Region) -> Region | None:
        """The common box, or None where there is no common element."""
        self._check_ndim(other)
        offsets = tuple(map(max, self.offsets, other.offsets))
        sizes = tuple(end - start for start, end in zip(offsets, map(min, self.ends, other.ends), strict=True))
        if any(size <= 0 for size in sizes):
            return None
        return Region(offsets, sizes)

    def within(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of this shape has the same ndim and holds the whole box."""
        return len(shape) == self.ndim and all(end <= size for end, size in zip(self.ends, shape, strict=True))

    def shifted(self, by: Sequence[int]) -> Region:
        """The same box moved by `by` elements in each dimension."""
        return Region(tuple(offset + move for offset, move in zip(self.offsets, by, strict=True)), self.sizes)

    def relative_to(self, outer: Region) -> Region:
        """The same box in coordinates that start at `outer`'s first element; ValueError if it starts before that."""
        self._check_ndim(outer)
        return self.shifted(tuple(-offset for offset in outer.offsets))

    def _check_ndim(self, other: Region) -> None:
        if self.ndim != other.ndim:
            raise ValueError(f"a {self.ndim}-d and a {other.ndim}-d region do not compare")


def regions_of_flat_range(shape: Sequence[int], start: int, stop: int) -> tuple[Region, ...]:
    """The row-major elements `start` to `stop` (exclusive) as at most 2*ndim-1 boxes, in flat order.

    An empty range gives no box. A 0-d shape has one element: the range 0 to 1 gives `Region((), ())`.
    """
    volume = prod(shape)
    if not 0 <= start <= stop <= volume:
        raise ValueError(f"the flat range {start}:{stop} is not inside the {volume} elements of shape {tuple(shape)}")
    if start == stop:
        return ()
    return tuple(_cut(tuple(shape), start, stop))


def _cut(shape: tuple[int, ...], start: int, stop: int) -> list[Region]:
    """Head, whole rows and tail of a non-empty range; head and tail recurse into one row each."""
    if len(shape) <= 1:
        return [Region((start,) * len(shape), (stop - start,) * len(shape))]
    row_volume = prod(shape[1:])
    first_row, first_rest = divmod(start, row_volume)
    last_row, last_rest = divmod(stop, row_volume)
    if first_row == last_row:
        return _in_row(first_row, shape, first_rest, last_rest)
    boxes = []
    if first_rest:
        boxes += _in_row(first_row, shape, first_rest, row_volume)
        first_row += 1
    if first_row < last_row:
        boxes.append(Region((first_row,) + (0,) * (len(shape) - 1), (last_row - first_row, *shape[1:])))
    if last_rest:
        boxes += _in_row(last_row, shape, 0, last_rest)
    return boxes


def _in_row(row: int, shape: tuple[int, ...], start: int, stop: int) -> list[Region]:
    return [Region((row, *box.offsets), (1, *box.sizes)) for box in _cut(shape[1:], start, stop)]
