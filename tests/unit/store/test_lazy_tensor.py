"""Indexing decides what is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.store.lazy_tensor import plan_index


@st.composite
def indexed(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    items: list[Any] = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        if draw(st.booleans()):
            items.append(draw(st.integers(-size, size - 1)))
        else:
            bounds = st.none() | st.integers(-size - 1, size + 1)
            items.append(slice(draw(bounds), draw(bounds), draw(st.none() | st.integers(1, 3))))
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), ...) if len(items) == len(shape) else items.append(...)
    return shape, tuple(items)


@given(indexed())
def test_the_box_and_the_index_within_it_give_what_numpy_gives(case: tuple[tuple[int, ...], tuple[Any, ...]]) -> None:
    shape, index = case
    tensor = np.arange(np.prod(shape)).reshape(shape)
    plan = plan_index(index, shape)
    box = tensor[tuple(slice(a, b) for a, b in zip(plan.region.offsets, plan.region.ends, strict=True))]
    np.testing.assert_array_equal(box[plan.within], tensor[index])


def test_nothing_more_than_the_range_is_in_the_box() -> None:
    assert plan_index((slice(10, 20, 5), 3), (100, 100)).region.sizes == (6, 1)
    assert plan_index(slice(5, 5), (100,)).region.is_empty


@pytest.mark.parametrize("index", [5, -6, (0, 0), (..., ...), None, True, [0, 1], slice(None, None, -1), 1.5])
def test_what_is_not_supported_is_an_index_error(index: Any) -> None:
    with pytest.raises(IndexError):
        plan_index(index, (5,))
