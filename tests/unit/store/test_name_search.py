"""Names people write."""

from __future__ import annotations

import pytest

from shardkeep.errors import NotFound
from shardkeep.protocol.messages import TensorInfo
from shardkeep.store.name_search import TensorNames


def info(name: str) -> TensorInfo:
    return TensorInfo(name=name, dtype="float32", shape=[1], kind="tensor", raw_bytes=4, slices=1)


NAMES = TensorNames(
    map(info, ["a\\.b", "net.layer.weight", "x\\.y.z", "x.y\\.z", "@value.0.big"]), checkpoint_id="ckp_1"
)


def test_exact_names_parts_and_unique_plain_texts_are_found() -> None:
    assert NAMES.resolve("a\\.b") == "a\\.b"
    assert NAMES.resolve("a.b") == "a\\.b"
    assert NAMES.resolve(("a.b",)) == "a\\.b"
    assert NAMES.resolve(["x", "y.z"]) == "x.y\\.z"


def test_a_text_of_several_names_lists_them() -> None:
    with pytest.raises(NotFound, match="2 tensors read like that"):
        NAMES.resolve("x.y.z")


def test_the_nearest_names_are_told() -> None:
    with pytest.raises(NotFound, match=r"net\.layer\.weight"):
        NAMES.resolve("net.layer.wieght")


def test_bytes_of_big_values_are_no_tensors() -> None:
    assert [item.name for item in NAMES.below(())] == ["a\\.b", "net.layer.weight", "x\\.y.z", "x.y\\.z"]
    assert [item.name for item in NAMES.below(("net", "layer"))] == ["net.layer.weight"]
    assert NAMES.below(("ne",)) == []
