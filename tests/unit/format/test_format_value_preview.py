"""Previews of values: strict JSON of what is stored, within their bounds, executing and building nothing."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.format.value_nodes import Tag
from shardkeep.format.value_preview import MAX_PREVIEWED_BYTES, PREVIEW_CHARACTERS, preview_value
from shardkeep.format.values import encode_value, register_value_type


def strict(text: str) -> Any:
    def refuse(constant: str) -> object:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def shown(value: object) -> Any:
    preview = preview_value(encode_value(value))
    assert not preview.cut, preview.text
    return strict(preview.text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (-1.5, -1.5),
        ("a\n<b>", "a\n<b>"),
        ([1, [2, "x"]], [1, [2, "x"]]),
        ({"lr": 0.1, "betas": (0.9, 0.95)}, {"lr": 0.1, "betas": {"$type": "tuple", "items": [0.9, 0.95]}}),
        ({1: "one"}, {"$type": "dict", "items": [[1, "one"]]}),
        ({"$type": "mine"}, {"$type": "dict", "items": [["$type", "mine"]]}),
        (OrderedDict(a=1), {"$type": "OrderedDict", "items": [["a", 1]]}),
        (Counter("aa"), {"$type": "Counter", "items": [["a", 2]]}),
        (defaultdict(int, a=1), {"$type": "defaultdict", "items": [["a", 1]]}),
        (deque([1], 3), {"$type": "deque", "items": [1]}),
        ({1, 2}, {"$type": "set", "items": [1, 2]}),
        (frozenset([1]), {"$type": "frozenset", "items": [1]}),
        (list(range(20)), list(range(20))),
        (tuple(range(20)), {"$type": "tuple", "items": list(range(20))}),
        (b"\x80\x04abc", {"$type": "bytes", "size": 5, "start": "8004616263"}),
        (bytearray(b"\1"), {"$type": "bytearray", "size": 1, "start": "01"}),
        (2 - 1j, {"$type": "complex", "real": 2.0, "imag": -1.0}),
        (np.float32(1.5), {"$type": "numpy", "dtype": "<f4", "value": 1.5}),
        (np.zeros((2, 3), "<f4"), {"$type": "ndarray", "dtype": "<f4", "shape": [2, 3], "size": 24}),
    ],
    ids=repr,
)
def test_a_value_is_shown_as_what_it_is(value: object, expected: object) -> None:
    assert shown(value) == expected


def test_E191_E192_numbers_that_json_or_a_double_cannot_hold_are_texts_and_none_is_lost() -> None:
    values = [math.nan, math.inf, -math.inf, 12345678901234567890, -(10**30), 2**53, 2**53 - 1, np.float64("nan")]

    assert shown(values) == [
        "NaN",
        "Infinity",
        "-Infinity",
        "12345678901234567890",
        "-1" + "0" * 30,
        "9007199254740992",
        9007199254740991,
        {"$type": "numpy", "dtype": "<f8", "value": "NaN"},
    ]
    assert shown([2**60] * 20) == ["1152921504606846976"] * 20
    assert shown(10**5000) == {"$type": "int", "size": 2077}


def test_E189_a_pickle_among_the_values_is_shown_as_bytes_and_never_loaded(tmp_path: Path) -> None:
    written = tmp_path / "written"

    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (written,)

    blob = pickle.dumps(Payload())

    found = shown({"extra_state": blob})

    assert found == {"extra_state": {"$type": "bytes", "size": len(blob), "start": blob[:16].hex()}}
    assert not written.exists()


def test_a_type_that_only_its_package_can_make_is_shown_by_its_plain_form() -> None:
    register_value_type("preview.Point", complex, lambda _: {"x": 1}, lambda _: pytest.fail("it was built"))
    node = [Tag.EXTENSION, "preview.Point", [Tag.DICT, "x", 1]]

    preview = preview_value(msgspec.msgpack.encode(node))

    assert strict(preview.text) == {"$type": "preview.Point", "value": {"x": 1}}


def test_leaves_kept_in_slices_are_named() -> None:
    value = {"text": "x" * 10, "bytes": b"y" * 10, "array": np.zeros(10, "<f4"), "ints": list(range(100, 200))}
    encoded = encode_value(value, extract=lambda path, _: f"@value.{path}", extract_over_bytes=8)

    found = strict(preview_value(encoded).text)

    assert found["bytes"] == {"$type": "bytes", "stored": "@value.value['bytes']"}
    assert found["text"] == {"$type": "str", "stored": "@value.value['text']"}
    assert found["ints"] == {"$type": "list", "stored": "@value.value['ints']"}
    assert found["array"] == {"$type": "ndarray", "dtype": "<f4", "shape": [10], "size": None}


@pytest.mark.parametrize(
    "value", ["x" * 10_000, list(range(5_000)), {str(i): i for i in range(3_000)}, [["é"] * 3_000]]
)
def test_a_long_value_is_cut_and_says_so(value: object) -> None:
    preview = preview_value(encode_value(value))

    assert preview.cut
    assert len(preview.text) == PREVIEW_CHARACTERS
    whole = json.dumps(value, ensure_ascii=False)
    assert whole.startswith(preview.text[:-1])


def test_a_value_of_just_the_limit_is_not_cut() -> None:
    text = "x" * (PREVIEW_CHARACTERS - 2)

    assert preview_value(encode_value(text)) == preview_value(encode_value(text), limit=PREVIEW_CHARACTERS)
    assert not preview_value(encode_value(text)).cut
    assert preview_value(encode_value(text + "x")).cut


def test_a_huge_encoding_is_named_by_its_size_only() -> None:
    encoded = encode_value(["x" * 64] * (MAX_PREVIEWED_BYTES // 64))

    preview = preview_value(encoded)

    assert preview.cut
    assert strict(preview.text) == {"$type": "value", "size": len(encoded)}


def test_a_value_nested_without_end_is_malformed_and_no_crash() -> None:
    node: list[Any] = [Tag.LIST]
    for _ in range(500):
        node = [Tag.LIST, node]

    for encoded in (msgspec.msgpack.encode(node), b"\x91" * 100_000):
        assert strict(preview_value(encoded).text)["$type"] == "malformed"


def test_the_first_keys_of_a_dict_are_told() -> None:
    assert preview_value(encode_value({"_snapshot": {}, 3: 4})).members == ("_snapshot",)
    assert preview_value(encode_value([1])).members == ()


@given(st.binary(max_size=64))
def test_whatever_the_bytes_are_the_preview_is_json_or_cut(data: bytes) -> None:
    preview = preview_value(data)

    assert preview.cut or strict(preview.text) is not Ellipsis


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_whatever_the_value_is_the_preview_is_strict_json(value: object) -> None:
    preview = preview_value(encode_value(value))

    assert preview.cut or strict(preview.text) is not Ellipsis
