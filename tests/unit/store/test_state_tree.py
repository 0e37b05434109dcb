"""What of a plain state is a tensor and what a value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardkeep.errors import StateError
from shardkeep.store.numpy_leaves import NumpyLeaves
from shardkeep.store.state_tree import TensorLeaf, ValueLeaf, is_replaceable, walk

ADAPTERS = (NumpyLeaves(),)


def names(state: dict[str, Any]) -> tuple[list[str], list[str]]:
    leaves = list(walk(state, ADAPTERS))
    tensors = [leaf.name for leaf in leaves if isinstance(leaf, TensorLeaf)]
    return tensors, [leaf.name for leaf in leaves if isinstance(leaf, ValueLeaf)]


def test_arrays_are_tensors_and_everything_else_is_a_value() -> None:
    state = {"a": np.ones(1), "b": {"c": np.ones(1), "d": 3}, "e": [1, 2], "f": {}, "g": np.float32(1), "h": None}
    assert names(state) == (["a", "b.c"], ["b.d", "e", "f", "g", "h"])


def test_containers_are_walked_only_if_they_hold_arrays() -> None:
    state = {"list": [np.ones(1), {"x": 1}], "plain": [{"x": [1]}], "deep": {0: {"y": (np.ones(1), "z")}}}
    assert names(state) == (["list.0", "deep.0.y.0"], ["list.1", "plain", "deep.0.y.1"])


def test_dots_in_keys_are_escaped() -> None:
    assert names({"a.b": np.ones(1), "a": {"b": np.ones(1)}})[0] == ["a\\.b", "a.b"]


def test_arrays_of_text_and_objects_are_values() -> None:
    assert names({"text": np.array(["a"]), "dates": np.array(["2020"], "M8[Y]")}) == ([], ["text", "dates"])


@pytest.mark.parametrize("state", [
    {1: np.ones(1)}, {"@own": 1}, {"a": {1: np.ones(1), "1": np.ones(1)}}, {"a": {(1, 2): np.ones(1)}}, [np.ones(1)],
])  # fmt: skip
def test_keys_that_give_no_name_of_their_own_are_refused(state: Any) -> None:
    with pytest.raises(StateError):
        list(walk(state, ADAPTERS))


def test_values_are_replaced_in_their_container_and_tuples_say_no() -> None:
    state: dict[str, Any] = {"a": {"b": 1, "t": np.ones(1)}, "c": (np.ones(1), 2)}
    values = {leaf.name: leaf for leaf in walk(state, ADAPTERS) if isinstance(leaf, ValueLeaf)}
    values["a.b"].replace(5)
    assert state["a"]["b"] == 5
    assert is_replaceable(values["a.b"], state)
    assert not is_replaceable(values["c.1"], state)
    with pytest.raises(StateError, match="tuple"):
        values["c.1"].replace(3)
