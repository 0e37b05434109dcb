"""A region that no box of one tensor holds, for the message about it."""

from __future__ import annotations

import numpy as np

from shardkeep.format.columns import Ints
from shardkeep.format.regions import Region


def find_gap(shape: tuple[int, ...], offsets: Ints, sizes: Ints) -> Region:
    """A missing box of a shape whose disjoint boxes (rows of `offsets` and `sizes`) hold too few elements.

    Axis by axis: between two neighbouring box edges the cross-section is the same everywhere, so the first slab whose
    cross-section is too small is kept, with the boxes that cross it.
    """
    gap_offsets: list[int] = []
    gap_sizes: list[int] = []
    for axis, length in enumerate(shape):
        low, high = offsets[:, axis], offsets[:, axis] + sizes[:, axis]
        edges = np.unique(np.concatenate((low, high, np.array([0, length]))))
        rest = _volumes(sizes[:, axis + 1 :])
        change = np.zeros(len(edges), np.int64)
        np.add.at(change, np.searchsorted(edges, low), rest)
        np.add.at(change, np.searchsorted(edges, high), -rest)
        full = int(np.prod(np.array(shape[axis + 1 :], np.int64)))
        slab = int(np.flatnonzero(np.cumsum(change)[:-1] < full)[0])
        start, stop = int(edges[slab]), int(edges[slab + 1])
        crossing = (low <= start) & (high >= stop)
        offsets, sizes = offsets[crossing], sizes[crossing]
        gap_offsets.append(start)
        gap_sizes.append(stop - start)
    return Region(tuple(gap_offsets), tuple(gap_sizes))


def _volumes(sizes: Ints) -> Ints:
    volumes = np.ones(len(sizes), np.int64)
    for axis in range(sizes.shape[1]):
        volumes *= sizes[:, axis]
    return volumes
