"""Where the bytes of a stored segment go in the memory of what was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from shardkeep.format.regions import Region, regions_of_flat_range


@dataclass(frozen=True, slots=True)
class Destination:
    """Memory for one region of a tensor: `out` holds its elements row-major."""

    region: Region
    out: memoryview
    item_bytes: int

    def array(self) -> npt.NDArray[np.uint8]:
        """The memory as bytes, one axis more than the region has."""
        return np.frombuffer(self.out, np.uint8).reshape(*self.region.sizes, self.item_bytes)


def contiguous_start(stored: Region, wanted: Region) -> int | None:
    """The element of `wanted` where `stored` starts, if all of `stored` is one run of `wanted`'s row-major elements.

    None if it is not: part of it lies outside, or other elements lie between its own.
    """
    if stored == wanted:
        return 0
    if stored.intersection(wanted) != stored:
        return None
    relative = stored.relative_to(wanted)
    first = next((axis for axis, size in enumerate(stored.sizes) if size != 1), stored.ndim)
    if relative.sizes[first + 1 :] != wanted.sizes[first + 1 :]:
        return None
    strides = [prod(wanted.sizes[axis + 1 :]) for axis in range(wanted.ndim)]
    return sum(offset * stride for offset, stride in zip(relative.offsets, strides, strict=True))


def direct_view(destination: Destination, part: Region, stored: Region, start: int, stop: int) -> memoryview | None:
    """The destination's own bytes for the stored elements `start` to `stop`, if they lie there in one run.

    None if they do not, or if some are outside `part`, the region that is taken from this stored slice.
    """
    first = end = None
    for box in regions_of_flat_range(stored.sizes, start, stop):
        absolute = box.shifted(stored.offsets)
        position = contiguous_start(absolute, destination.region)
        if position is None or absolute.intersection(part) != absolute or (end is not None and position != end):
            return None
        first = position if first is None else first
        end = position + box.volume
    if first is None or end is None:
        return None
    return destination.out[first * destination.item_bytes : end * destination.item_bytes]


def scatter(destination: Destination, part: Region, stored: Region, start: int, stop: int, raw: memoryview) -> None:
    """Copy what lies in `part` of the stored row-major elements `start` to `stop`, whose bytes are `raw`."""
    target = destination.array()
    position = 0
    for box in regions_of_flat_range(stored.sizes, start, stop):
        size_bytes = box.volume * destination.item_bytes
        source = np.frombuffer(raw[position : position + size_bytes], np.uint8).reshape(
            *box.sizes, destination.item_bytes
        )
        position += size_bytes
        absolute = box.shifted(stored.offsets)
        common = absolute.intersection(part)
        if common is not None:
            target[_slices(common.relative_to(destination.region))] = source[_slices(common.relative_to(absolute))]


def is_wanted(part: Region, stored: Region, start: int, stop: int) -> bool:
    """Whether any of the stored row-major elements `start` to `stop` lies in `part`."""
    boxes = regions_of_flat_range(stored.sizes, start, stop)
    return any(box.shifted(stored.offsets).intersection(part) is not None for box in boxes)


def _slices(region: Region) -> tuple[slice, ...]:
    return tuple(slice(offset, end) for offset, end in zip(region.offsets, region.ends, strict=True))
