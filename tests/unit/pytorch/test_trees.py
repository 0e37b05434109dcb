from __future__ import annotations

from collections import Counter, OrderedDict, namedtuple
from typing import Any

import pytest
import torch

from shardkeep.errors import StateError, UnsupportedValue
from shardkeep.pytorch.marks import PerRank, Sharded
from shardkeep.pytorch.trees import (
    PER_RANK_LEAF,
    TENSOR_LEAF,
    Leaves,
    leaf_kinds,
    put_together,
    take_apart,
    update_in_place,
)

W = torch.ones(2)


def again(leaves: Leaves, parts: tuple[str, ...]) -> Any:
    everything = {**leaves.tensors, **leaves.values, **leaves.per_rank}
    return put_together(leaves.structure, parts, lambda path, kind: everything[path])


def test_a_tree_comes_back_with_its_key_types_order_and_containers() -> None:
    tree = OrderedDict(
        [("z", {3: W, "a": [W, (1, W)]}), ("milestones", Counter({25: 1, 50: 1})), ("empty", {}), ("n", None)]
    )
    leaves = take_apart(tree, ("s",))
    assert set(leaves.tensors) == {("s", "z", "3"), ("s", "z", "a", "0"), ("s", "z", "a", "1", "1")}
    assert leaves.values[("s", "milestones")] == {25: 1, 50: 1}
    rebuilt = again(leaves, ("s",))
    assert type(rebuilt) is OrderedDict
    assert list(rebuilt) == list(tree)
    assert rebuilt["z"][3] is W
    assert rebuilt["z"]["a"][1] == (1, W)
    assert rebuilt["empty"] == {}


def test_only_the_root_and_what_holds_tensors_is_opened() -> None:
    leaves = take_apart({"a": {"b": {"c": 1}}, "d": [1, 2], "e": {"f": W, "g": 2}}, ("s",))
    assert leaves.values == {("s", "a"): {"b": {"c": 1}}, ("s", "d"): [1, 2], ("s", "e", "g"): 2}


def test_marks_are_leaves() -> None:
    sharded = Sharded(W, shape=(4,), offset=(2,))
    leaves = take_apart({"s": sharded, "p": PerRank({"clock": 1})}, ("x",))
    assert leaves.tensors == {("x", "s"): sharded}
    assert leaves.per_rank == {("x", "p"): {"clock": 1}}
    assert leaf_kinds(leaves.structure, ("x",)) == {("x", "s"): TENSOR_LEAF, ("x", "p"): PER_RANK_LEAF}


def test_keys_that_read_alike_are_an_error() -> None:
    with pytest.raises(StateError, match=r"1 and '1' of s"):
        take_apart({1: 2, "1": 3}, ("s",))


def test_a_named_tuple_with_tensors_is_an_error() -> None:
    pair = namedtuple("pair", "a b")  # noqa: PYI024  # the untyped kind is what is refused
    with pytest.raises(UnsupportedValue, match=r"s\.x is a pair"):
        take_apart({"x": pair(W, 1)}, ("s",))


def test_updating_keeps_the_identity_of_containers() -> None:
    inner, hist, holder = {"k": 1, "gone": 2}, [1, 2, 3], PerRank([1])
    live = {"inner": inner, "hist": hist, "holder": holder, "old": 0}
    update_in_place(live, {"inner": {"k": 5}, "hist": [9], "holder": PerRank([2, 3]), "new": 1})
    assert live == {"inner": {"k": 5}, "hist": [9], "holder": holder, "new": 1}
    assert live["inner"] is inner
    assert live["hist"] is hist
    assert holder.value == [2, 3]
