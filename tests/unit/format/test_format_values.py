from __future__ import annotations

import datetime as dt
import enum
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.errors import FormatError, UnsupportedValue
from shardkeep.format.buffers import Buffer
from shardkeep.format.values import decode_value, encode_value, register_value_type

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
KEYS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | TEXT
    | st.binary(max_size=5)
    | st.tuples(st.integers(), TEXT)
    | st.frozensets(st.integers(), max_size=3)
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    KEYS | st.floats() | st.complex_numbers() | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=16, max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4).map(OrderedDict)
        | st.sets(KEYS, max_size=4)
        | st.lists(inner, max_size=3).map(lambda items: deque(items, 5))
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal in type, order and every bit of every float."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", other)
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, set | frozenset):
        return one == other and Counter(map(type, one)) == Counter(map(type, other))
    return bool(one == other)


@settings(max_examples=300)
@given(VALUES)
def test_values_round_trip_in_type_order_and_bits(value: Any) -> None:
    data = encode_value(value)
    decoded = decode_value(data)
    assert same(decoded, value)
    assert encode_value(decoded) == data


@pytest.mark.parametrize(
    "value",
    [
        2**64,
        -(2**63) - 1,
        2**200,
        -(2**199),
        255 << 56,
        math.inf,
        -0.0,
        struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_1234))[0],
        bytearray(b"x"),
        Counter("aab"),
        Counter({"a": 0, "b": -1}),
        deque([1, 2], 2),
        deque(),
        list(range(100)),
        tuple(range(100)),
        [True] * 20,
        [2**63] * 20,
        np.float32(0.1),
        np.bool_(True),
        np.datetime64("2026-01-01T00:00", "m"),
        np.str_("text"),
    ],
    ids=repr,
)
def test_single_values_round_trip(value: Any) -> None:
    assert same(decode_value(encode_value(value)), value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(5.0),
        np.zeros((0, 3), np.float16),
        np.array(["a", "bcd"]),
        np.array(["2026-01-01"], "M8[D]"),
        np.array([True, False]),
        np.arange(10)[::3],
    ],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
def test_arrays_keep_dtype_shape_and_elements(array: np.ndarray[Any, Any]) -> None:
    decoded: Any = decode_value(encode_value(array))
    assert (decoded.dtype, decoded.shape) == (array.dtype, array.shape)
    assert np.array_equal(decoded, array)
    assert decoded.flags.writeable


@pytest.mark.parametrize("factory", [int, list, dict, set, float, str])
def test_default_dicts_keep_their_factory(factory: type) -> None:
    decoded: Any = decode_value(encode_value(defaultdict(factory, {"a": factory()})))
    assert type(decoded) is defaultdict
    assert decoded.default_factory is factory
    assert decoded["missing"] == factory()


@pytest.mark.parametrize(
    "value", [[], [{"a": 1}, {"b": 2}], {1: "int", "1": "str"}, {"nested": {}}, None, {"a": [None, {}]}], ids=repr
)
def test_E132_containers_come_back_equal_in_type_however_empty(value: Any) -> None:
    assert same(decode_value(encode_value(value)), value)


def test_E133_integer_keys_stay_integers_over_two_saves() -> None:
    state = {"milestones": Counter({25: 1, 50: 1}), "last": {25: 1, 50: 1}}
    once: Any = decode_value(encode_value(state))
    twice: Any = decode_value(encode_value(once))
    assert same(twice, state)
    assert [type(key) for key in twice["last"]] == [int, int]


class Colour(enum.IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        Point(1),
        object(),
        print,
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "\ud800",
        defaultdict(lambda: 1),
        np.array([object()]),
        np.zeros(1, [("a", "<i4")]),
        np.longdouble(1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_refused_with_its_path(value: object) -> None:
    with pytest.raises(UnsupportedValue) as caught:
        encode_value({"x": [0, value]}, path="state.a")
    assert str(caught.value).startswith("state.a['x'][1]: ")


def test_values_that_contain_themselves_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UnsupportedValue, match="contains itself"):
        encode_value(loop)


def test_equal_sets_give_equal_bytes() -> None:
    one, other = set(), set()
    for number in range(0, 1000, 7):
        one.add(number)
    for number in reversed(range(0, 1000, 7)):
        other.add(number)
    assert encode_value(one) == encode_value(other)


def test_big_leaves_are_extracted_and_fetched() -> None:
    kept: dict[str, bytes] = {}

    def extract(path: str, data: Buffer) -> str:
        kept[f"big/{path}"] = bytes(data)
        return f"big/{path}"

    value: dict[str, Any] = {
        "array": np.arange(20000, dtype="<f8"),
        "bytes": b"x" * 70000,
        "text": "\u00e9" * 40000,
        "ints": list(range(10000)),
        "small": b"x" * 65536,
    }
    data = encode_value(value, path="s", extract=extract)
    assert len(data) < 66000
    assert set(kept) == {f"big/s['{key}']" for key in ("array", "bytes", "text", "ints")}

    decoded: Any = decode_value(data, fetch=kept.__getitem__)

    assert np.array_equal(decoded.pop("array"), value.pop("array"))
    assert same(decoded, value)
    with pytest.raises(FormatError, match="fetch"):
        decode_value(data)


class Meters:
    def __init__(self, length: float) -> None:
        self.length = length


def test_other_packages_add_types() -> None:
    register_value_type("test.meters", Meters, lambda value: {"m": value.length}, lambda plain: Meters(plain["m"]))
    decoded: Any = decode_value(encode_value([Meters(2.5)]))
    assert type(decoded[0]) is Meters
    assert decoded[0].length == 2.5
    with pytest.raises(FormatError, match="malformed"):
        decode_value(msgspec.msgpack.encode([14, "test.meters", 3]))
    with pytest.raises(FormatError, match=r"shardkeep\.pytorch"):
        decode_value(msgspec.msgpack.encode([14, "test.unheard", 3]))


SAMPLES = [
    encode_value({"a": [1, 2.5, None], (1, 2): {3}, "d": deque([1], 3), "n": np.arange(3), "i": [7] * 16}),
    encode_value([2**70, 1j, np.float32(1), bytearray(b"x"), defaultdict(list), Counter("ab")]),
]


@settings(max_examples=500)
@given(st.sampled_from(SAMPLES), st.data())
def test_malformed_bytes_are_format_errors(sample: bytes, data: st.DataObject) -> None:
    damaged = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged)))
        damaged[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    try:
        decode_value(bytes(damaged))
    except FormatError:
        return


@given(st.binary(max_size=60))
def test_garbage_is_a_format_error_or_a_value(garbage: bytes) -> None:
    try:
        decode_value(garbage)
    except FormatError:
        return


@pytest.mark.parametrize(
    "node",
    [
        [0] * 0,
        [99],
        [2, "key"],
        [2, "a", 1, "a", 2],
        [2, [0], 1],
        [3, 1, 1],
        [3, [0]],
        [8, "eval"],
        [12, "|O8", [1], b"12345678"],
        [12, "<f4", [1 << 40, 1 << 40], b""],
        [12, "<f4", [0, 1 << 55, 1 << 55], b""],
        [12, "<f4", [2], b"1234"],
        [12, "<U1000000000", [1], b""],
        [16, b"1234567"],
        [7, -1],
        [7, 1, 1, 2],
        {"a": 1},
        pytest.param(msgspec.msgpack.Ext(1, b""), id="extension"),
    ],
    ids=repr,
)
def test_hostile_nodes_are_format_errors(node: object) -> None:
    with pytest.raises(FormatError):
        decode_value(msgspec.msgpack.encode(node))


def test_deep_nesting_is_a_format_error() -> None:
    for deep in (b"\x92\x00" * 1000 + b"\xc0", b"\x91" * 100_000 + b"\xc0"):
        with pytest.raises(FormatError):
            decode_value(deep)
