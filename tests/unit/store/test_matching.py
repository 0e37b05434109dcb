"""Pairing a plain state with what is stored, without a service."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardkeep.errors import DtypeMismatch, MissingNames, ShapeMismatch
from shardkeep.format.names import join_name
from shardkeep.protocol.messages import TensorInfo
from shardkeep.store.matching import Matching, match
from shardkeep.store.numpy_leaves import NumpyLeaves
from shardkeep.store.state_tree import walk
from shardkeep.store.stored_leaves import StoredLeaves
from shardkeep.store.structures import VALUE_LEAF, structure_path

Path = tuple[str, ...]


def stored(*tensors: Path, values: dict[Path, Any] | None = None, size: int = 2) -> StoredLeaves:
    infos = [
        TensorInfo(name=join_name(path), dtype="float64", shape=[size], kind="tensor", raw_bytes=8 * size, slices=1)
        for path in tensors
    ]
    return StoredLeaves(infos, values or {})


def matched(leaves: StoredLeaves, state: dict[str, Any], *, cast: bool = False) -> Matching:
    return match(leaves, list(walk(state, [NumpyLeaves()])), state, cast=cast)


def array() -> Any:
    return np.zeros(2)


def test_exact_names_win_over_the_same_plain_text() -> None:
    found = matched(stored(("m", "a.b"), ("m", "a", "b")), {"m": {"a.b": array(), "a": {"b": array()}}})
    assert [info.name for info, _ in found.tensors] == ["m.a\\.b", "m.a.b"]
    assert (found.missing, found.unexpected) == ([], [])


def test_a_plain_text_that_an_exact_name_claims_is_not_given_away_twice() -> None:
    found = matched(stored(("m", "a.b")), {"m": {"a.b": array(), "a": {"b": array()}}})
    assert [info.name for info, _ in found.tensors] == ["m.a\\.b"]
    assert found.missing == ["m.a.b"]


def test_two_names_that_read_like_the_only_stored_one_are_both_missing() -> None:
    found = matched(stored(("m", "a", "b", "c")), {"m": {"a.b": {"c": array()}, "a": {"b.c": array()}}})
    assert found.missing == ["m.a\\.b.c", "m.a.b\\.c"]
    assert found.unexpected == ["m.a.b.c"]


def test_a_tied_name_is_loaded_from_the_stored_one_beside_it() -> None:
    values: dict[Path, Any] = {("@aliases",): {"m.head.weight": "m.embed.weight"}}
    found = matched(
        stored(("m", "embed", "weight"), values=values), {"m": {"embed.weight": array(), "head.weight": array()}}
    )
    assert [info.name for info, _ in found.tensors] == ["m.embed.weight"] * 2
    assert (found.missing, found.unexpected) == ([], [])


def test_a_dict_kept_member_by_member_is_one_value_again() -> None:
    structure = ["dict", [["epoch", VALUE_LEAF], [7, VALUE_LEAF]]]
    values: dict[Path, Any] = {("p", "epoch"): 3, ("p", "7"): "seven", structure_path(("p",)): structure}
    found = matched(stored(values=values), {"p": {"epoch": 0}})
    assert [value for _, value in found.values] == [{"epoch": 3, 7: "seven"}]
    assert found.unexpected == []


def test_messages_are_capped_and_attributes_are_whole() -> None:
    names = [f"w{number:03}" for number in range(100)]
    found = matched(stored(*[("old", name) for name in names]), {"old": {f"new-{name}": array() for name in names}})
    with pytest.raises(MissingNames) as caught:
        found.refuse((), ())
    assert len(caught.value.missing) == len(caught.value.unexpected) == 100
    assert len(caught.value.names) == 200
    assert str(caught.value).count("new-w") == 16
    assert str(caught.value).count("and 84 more") == 2

    state = {"old": {name: np.zeros(3) for name in names}}
    with pytest.raises(ShapeMismatch, match="and 84 more") as shapes:
        matched(stored(*[("old", name) for name in names]), state).refuse((), ())
    assert len(shapes.value.names) == 100
    with pytest.raises(DtypeMismatch, match="and 84 more") as dtypes:
        matched(stored(*[("old", name) for name in names]), {"old": {name: np.zeros(2, int) for name in names}}).refuse(
            (), ()
        )
    assert dtypes.value.names == tuple(f"old.{name}" for name in names)


@pytest.mark.parametrize("allowed", ["m", "m.a.b", "m.a\\.b", "m.a"])
def test_names_are_allowed_in_stored_or_plain_form_or_by_one_above(allowed: str) -> None:
    matched(stored(("m", "x")), {"m": {"a.b": array()}}).refuse([allowed], ["m.x"])
