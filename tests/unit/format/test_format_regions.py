from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.format.regions import Region, regions_of_flat_range
from tests.unit.format.builders import as_slices

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@st.composite
def shape_and_range(draw: st.DrawFn) -> tuple[tuple[int, ...], int, int]:
    shape = draw(SHAPES)
    start = draw(st.integers(0, prod(shape)))
    return shape, start, draw(st.integers(start, prod(shape)))


@given(shape_and_range())
def test_a_flat_range_is_cut_into_few_boxes_in_flat_order(case: tuple[tuple[int, ...], int, int]) -> None:
    shape, start, stop = case
    elements = np.arange(prod(shape)).reshape(shape)

    boxes = regions_of_flat_range(shape, start, stop)

    assert len(boxes) <= max(1, 2 * len(shape) - 1)
    assert all(box.within(shape) and not box.is_empty for box in boxes)
    served = [int(element) for box in boxes for element in elements[as_slices(box)].ravel()]
    assert served == list(range(start, stop))


def test_a_scalar_is_one_box() -> None:
    assert regions_of_flat_range((), 0, 1) == (Region((), ()),)
    assert Region((), ()).volume == 1
    assert not Region((), ()).is_empty
    assert regions_of_flat_range((), 0, 0) == regions_of_flat_range((0, 3), 0, 0) == ()


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 7)])
def test_a_flat_range_outside_the_tensor_is_an_error(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="flat range"):
        regions_of_flat_range((2, 3), start, stop)


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 4), min_size=1, max_size=3))
def test_intersections_hold_the_common_elements(axes: list[tuple[int, int, int, int]]) -> None:
    one = Region(tuple(a[0] for a in axes), tuple(a[1] for a in axes))
    other = Region(tuple(a[2] for a in axes), tuple(a[3] for a in axes))
    marks = np.zeros((8,) * len(axes), int)
    marks[as_slices(one)] += 1
    marks[as_slices(other)] += 1

    common = one.intersection(other)

    assert (common.volume if common else 0) == int((marks == 2).sum())
    if common:
        assert (marks[as_slices(common)] == 2).all()
        assert common.relative_to(one).shifted(one.offsets) == common


def test_regions_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        Region((0,), ())
    with pytest.raises(ValueError, match="negative"):
        Region((-1,), (1,))
    with pytest.raises(ValueError, match="do not compare"):
        Region((0,), (1,)).intersection(Region((), ()))
