"""Stored segments land where numpy would put them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.format.regions import Region
from shardkeep.planning.placement import Destination, contiguous_start, direct_view, is_wanted, scatter

SHAPES = st.lists(st.integers(1, 5), min_size=0, max_size=4).map(tuple)


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> Region:
    offsets = tuple(draw(st.integers(0, size - 1)) for size in shape)
    sizes = tuple(draw(st.integers(1, size - offset)) for size, offset in zip(shape, offsets, strict=True))
    return Region(offsets, sizes)


def cut(array: np.ndarray[Any, Any], region: Region) -> np.ndarray[Any, Any]:
    return array[tuple(slice(a, b) for a, b in zip(region.offsets, region.ends, strict=True))]


@given(st.data(), SHAPES)
def test_scatter_and_direct_views_agree_with_numpy(data: st.DataObject, shape: tuple[int, ...]) -> None:
    tensor = np.arange(np.prod(shape, dtype=int), dtype="<u2").reshape(shape) + 1
    stored, wanted = data.draw(boxes(shape)), data.draw(boxes(shape))
    part = stored.intersection(wanted)
    flat = np.ascontiguousarray(cut(tensor, stored)).reshape(-1)
    cuts = sorted({0, flat.size, *data.draw(st.lists(st.integers(0, flat.size), max_size=3))})
    out = np.zeros(wanted.sizes, "<u2")
    destination = Destination(wanted, out.reshape(-1).view(np.uint8).data, 2)
    for start, stop in pairwise(cuts):
        raw = flat[start:stop].view(np.uint8).data
        if part is None or not is_wanted(part, stored, start, stop):
            continue
        direct = direct_view(destination, part, stored, start, stop)
        if direct is not None:
            direct[:] = raw
        else:
            scatter(destination, part, stored, start, stop, raw)
    expected = np.zeros(shape, "<u2")
    if part is not None:
        index = tuple(slice(a, b) for a, b in zip(part.offsets, part.ends, strict=True))
        expected[index] = tensor[index]
    np.testing.assert_array_equal(out, cut(expected, wanted))


def test_whole_rows_are_one_run() -> None:
    wanted = Region((2, 0), (6, 10))
    assert contiguous_start(Region((4, 0), (2, 10)), wanted) == 20
    assert contiguous_start(Region((4, 3), (1, 5)), wanted) == 23
    assert contiguous_start(Region((4, 3), (2, 5)), wanted) is None
    assert contiguous_start(Region((0, 0), (2, 10)), wanted) is None
    assert contiguous_start(Region((), ()), Region((), ())) == 0
