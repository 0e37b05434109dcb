"""`decode_value`: values from stored bytes, executing nothing and refusing everything malformed."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import msgspec
import numpy as np

from shardkeep.errors import FormatError, ShardkeepError
from shardkeep.format.buffers import Buffer
from shardkeep.format.value_nodes import FACTORIES, MAX_DEPTH, Tag, numpy_dtype_of
from shardkeep.format.value_types import value_type_tagged

Fetch: TypeAlias = Callable[[str], Buffer]
"""Gives the bytes of the slice of this name, as extracted when the value was encoded."""

MAX_VALUE_BYTES = 256 << 20
_MAX_NDIM = 64


def decode_value(data: Buffer, *, fetch: Fetch | None = None) -> object:
    """The value of `encode_value`'s bytes. FormatError if they are malformed, or if `fetch` is needed and absent."""
    if len(data) > MAX_VALUE_BYTES:
        raise FormatError(f"a value of {len(data)} bytes is above the limit of {MAX_VALUE_BYTES}")
    try:
        node = msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError, OverflowError, TypeError) as exc:
        raise FormatError(f"a value is malformed: {exc}") from exc
    return _Decoder(fetch).value(node, 0)


class _Decoder:
    def __init__(self, fetch: Fetch | None) -> None:
        self._fetch = fetch

    def value(self, node: Any, depth: int) -> object:
        """The value of one node."""
        if type(node) in _PLAIN_TYPES:
            return node
        if type(node) is not list or not node or type(node[0]) is not int:
            raise FormatError(f"a value holds a {type(node).__name__} that is no tagged array")
        if depth > MAX_DEPTH:
            raise FormatError(f"a value is nested more than {MAX_DEPTH} deep")
        tag, body = node[0], node[1:]
        if tag in _LEAVES:
            return _LEAVES[tag](self, body)
        if tag in _CONTAINERS:
            return _CONTAINERS[tag](self, body, depth)
        raise FormatError(f"a value has the unknown tag {tag}")

    def _items(self, body: list[Any], depth: int) -> list[object]:
        return [self.value(node, depth + 1) for node in body]

    def list_of(self, body: list[Any], depth: int) -> object:
        return self._items(body, depth)

    def tuple_of(self, body: list[Any], depth: int) -> object:
        return tuple(self._items(body, depth))

    def deque_of(self, body: list[Any], depth: int) -> object:
        if not body or not (body[0] is None or (type(body[0]) is int and 0 <= body[0] < 1 << 63)):
            raise FormatError("a stored deque has no valid maxlen")
        if body[0] is not None and len(body) - 1 > body[0]:
            raise FormatError("a stored deque is longer than its maxlen")
        return deque(self._items(body[1:], depth), body[0])

    def set_of(self, body: list[Any], depth: int) -> object:
        return set(self._unique_items(body, depth))

    def frozenset_of(self, body: list[Any], depth: int) -> object:
        return frozenset(self._unique_items(body, depth))

    def _unique_items(self, body: list[Any], depth: int) -> set[object]:
        items = self._items(body, depth)
        try:
            unique = set(items)
        except TypeError as exc:
            raise FormatError(f"a stored set has an item that cannot be one: {exc}") from exc
        if len(unique) != len(items):
            raise FormatError("an item of a stored set repeats")
        return unique

    def dict_of(self, body: list[Any], depth: int) -> object:
        return self._fill({}, body, depth)

    def ordered_dict_of(self, body: list[Any], depth: int) -> object:
        return self._fill(OrderedDict(), body, depth)

    def counter_of(self, body: list[Any], depth: int) -> object:
        return self._fill(Counter(), body, depth)

    def default_dict_of(self, body: list[Any], depth: int) -> object:
        if not body or type(body[0]) is not str or body[0] not in FACTORIES:
            raise FormatError("a stored defaultdict has an unknown factory")
        return self._fill(defaultdict(FACTORIES[body[0]]), body[1:], depth)

    def _fill(self, target: dict[Any, Any], body: list[Any], depth: int) -> object:
        if len(body) % 2:
            raise FormatError("a stored dict has a key without a value")
        keys, items = self._items(body[::2], depth), self._items(body[1::2], depth)
        try:
            for key, item in zip(keys, items, strict=True):
                target[key] = item  # noqa: PERF403  (update() of a Counter counts instead)
        except TypeError as exc:
            raise FormatError(f"a stored dict has a key that cannot be one: {exc}") from exc
        if len(target) != len(keys):
            raise FormatError("a key of a stored dict repeats")
        return target

    def big_int_of(self, body: list[Any]) -> object:
        (data,) = _checked(body, bytes)
        return int.from_bytes(data, "little", signed=True)

    def complex_of(self, body: list[Any]) -> object:
        real, imag = _checked(body, float, float)
        return complex(real, imag)

    def scalar_of(self, body: list[Any]) -> object:
        text, data = _checked(body, str, None)
        return self._numpy(text, (), data)[()]

    def array_of(self, body: list[Any]) -> object:
        text, shape, data = _checked(body, str, list, None)
        if len(shape) > _MAX_NDIM or not all(type(size) is int and 0 <= size < 1 << 56 for size in shape):
            raise FormatError("a stored array has no valid shape")
        return self._numpy(text, tuple(shape), data).copy()

    def _numpy(self, text: str, shape: tuple[int, ...], data: object) -> np.ndarray[Any, Any]:
        dtype = numpy_dtype_of(text)
        buffer = self._buffer(data)
        if dtype is None or prod(shape) * dtype.itemsize != len(buffer):
            raise FormatError(f"a stored array of dtype {text[:40]!r} and shape {shape} has {len(buffer)} bytes")
        try:
            return np.frombuffer(buffer, dtype).reshape(shape) if len(buffer) else np.zeros(shape, dtype)
        except (ValueError, OverflowError) as exc:
            raise FormatError(f"a stored array of shape {shape} cannot exist: {exc}") from exc

    def bytearray_of(self, body: list[Any]) -> object:
        (data,) = _checked(body, None)
        return bytearray(self._buffer(data))

    def extension_of(self, body: list[Any], depth: int) -> object:
        tag, node = _checked(body, str, None)
        value_type = value_type_tagged(tag)
        plain = self.value(node, depth + 1)
        try:
            return value_type.from_plain(plain)
        except ShardkeepError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as exc:
            raise FormatError(f"a stored value of type {tag!r} is malformed: {exc}") from exc

    def extracted_of(self, body: list[Any]) -> object:
        return bytes(self._buffer([Tag.EXTRACTED, *body]))

    def int_list_of(self, body: list[Any]) -> object:
        (data,) = _checked(body, None)
        buffer = self._buffer(data)
        if len(buffer) % 8:
            raise FormatError("a stored list of ints is not a whole number of 8 bytes")
        return np.frombuffer(buffer, "<i8").tolist()

    def int_tuple_of(self, body: list[Any]) -> object:
        items: Any = self.int_list_of(body)
        return tuple(items)

    def text_of(self, body: list[Any]) -> object:
        (data,) = _checked(body, None)
        try:
            return str(self._buffer(data), "utf-8")
        except UnicodeDecodeError as exc:
            raise FormatError("a stored text is not UTF-8") from exc

    def _buffer(self, node: object) -> Buffer:
        if isinstance(node, bytes):
            return node
        if not isinstance(node, list) or len(node) != 2 or node[0] != Tag.EXTRACTED or type(node[1]) is not str:
            raise FormatError("a value has neither bytes nor the name of a slice where one belongs")
        if self._fetch is None:
            raise FormatError(f"a value is kept in the slice {node[1]!r}: give `fetch` to read it")
        return memoryview(self._fetch(node[1])).cast("B")


def _checked(body: list[Any], *types: type | None) -> list[Any]:
    if len(body) != len(types) or any(want not in (None, type(has)) for has, want in zip(body, types, strict=True)):
        raise FormatError("a stored value has fields of the wrong number or type")
    return body


_PLAIN_TYPES = frozenset((type(None), bool, int, float, str, bytes))

_LEAVES: dict[int, Callable[[_Decoder, list[Any]], object]] = {
    Tag.BIG_INT: _Decoder.big_int_of,
    Tag.COMPLEX: _Decoder.complex_of,
    Tag.SCALAR: _Decoder.scalar_of,
    Tag.ARRAY: _Decoder.array_of,
    Tag.BYTEARRAY: _Decoder.bytearray_of,
    Tag.EXTRACTED: _Decoder.extracted_of,
    Tag.INT_LIST: _Decoder.int_list_of,
    Tag.INT_TUPLE: _Decoder.int_tuple_of,
    Tag.TEXT: _Decoder.text_of,
}
_CONTAINERS: dict[int, Callable[[_Decoder, list[Any], int], object]] = {
    Tag.LIST: _Decoder.list_of,
    Tag.TUPLE: _Decoder.tuple_of,
    Tag.DICT: _Decoder.dict_of,
    Tag.SET: _Decoder.set_of,
    Tag.FROZENSET: _Decoder.frozenset_of,
    Tag.ORDERED_DICT: _Decoder.ordered_dict_of,
    Tag.COUNTER: _Decoder.counter_of,
    Tag.DEQUE: _Decoder.deque_of,
    Tag.DEFAULT_DICT: _Decoder.default_dict_of,
    Tag.EXTENSION: _Decoder.extension_of,
}
