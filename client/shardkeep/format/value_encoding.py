"""`encode_value`: non-tensor state as deterministic bytes."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec
import numpy as np

from shardkeep.errors import UnsupportedValue
from shardkeep.format.buffers import Buffer
from shardkeep.format.value_nodes import EXTRACT_OVER_BYTES, FACTORIES, MAX_DEPTH, MIN_PACKED_INTS, Tag, storable_dtype
from shardkeep.format.value_types import value_type_of

Extract: TypeAlias = Callable[[str, Buffer], str]
"""Takes the path and the bytes of a big leaf, gives the name of the slice that will hold them."""


def encode_value(
    obj: object, *, path: str = "value", extract: Extract | None = None, extract_over_bytes: int = EXTRACT_OVER_BYTES
) -> bytes:
    """The stored bytes of a value; equal values (in type, order and content) give equal bytes.

    With `extract`, texts, bytes, arrays and packed ints of more than `extract_over_bytes` are handed to it and only
    their slice name is stored. UnsupportedValue, naming the path, for anything that cannot come back without
    executing code or that would come back as another type.
    """
    return _pack(_Encoder(extract, extract_over_bytes).node(obj, path, 0))


def _pack(node: object) -> bytes:
    return msgspec.msgpack.encode(node)


def _refused(path: str, obj: object, hint: str = "") -> UnsupportedValue:
    type_ = type(obj)
    name = type_.__qualname__ if type_.__module__ == "builtins" else f"{type_.__module__}.{type_.__qualname__}"
    return UnsupportedValue(f"{path}: {name} cannot be stored{hint and ': ' + hint}")


class _Encoder:
    def __init__(self, extract: Extract | None, extract_over_bytes: int) -> None:
        self._extract = extract
        self._extract_over_bytes = extract_over_bytes
        self._extracted_paths: set[str] = set()

    def node(self, obj: Any, path: str, depth: int) -> object:
        """The msgpack form of one value."""
        if depth > MAX_DEPTH:
            raise _refused(path, obj, f"it is nested more than {MAX_DEPTH} deep or contains itself")
        type_ = type(obj)
        if type_ in _PLAIN_TYPES:
            return obj
        if type_ in _NUMBERS:
            return _NUMBERS[type_](obj)
        if type_ in _LEAVES:
            return _LEAVES[type_](self, obj, path)
        if type_ in _CONTAINERS:
            return _CONTAINERS[type_](self, obj, path, depth)
        if isinstance(obj, np.generic):
            return self.scalar_node(obj, path)
        extension = value_type_of(type_)
        if extension is None:
            raise _refused(path, obj)
        return [Tag.EXTENSION, extension.tag, self.node(extension.to_plain(obj), path, depth + 1)]

    def str_node(self, obj: str, path: str) -> object:
        try:
            encoded = obj.encode("utf-8")
        except UnicodeEncodeError as exc:
            raise _refused(path, obj, "it contains lone surrogates") from exc
        stored = self._bytes_or_name(encoded, path)
        return obj if stored is encoded else [Tag.TEXT, stored]

    def bytes_node(self, obj: bytes, path: str) -> object:
        return self._bytes_or_name(obj, path)

    def bytearray_node(self, obj: bytearray, path: str) -> object:
        return [Tag.BYTEARRAY, self._bytes_or_name(obj, path)]

    def sequence_node(self, obj: list[object] | tuple[object, ...], path: str, depth: int) -> object:
        is_list = type(obj) is list
        if len(obj) >= MIN_PACKED_INTS and set(map(type, obj)) == {int}:
            packed = _pack_ints(obj)
            if packed is not None:
                return [Tag.INT_LIST if is_list else Tag.INT_TUPLE, self._bytes_or_name(packed, path)]
        return [Tag.LIST if is_list else Tag.TUPLE, *self._items(obj, path, depth)]

    def deque_node(self, obj: deque[object], path: str, depth: int) -> object:
        return [Tag.DEQUE, obj.maxlen, *self._items(obj, path, depth)]

    def set_node(self, obj: set[object] | frozenset[object], path: str, depth: int) -> object:
        # Items of a set are never extracted: their order, and so their paths, would depend on hashing.
        inline = _Encoder(None, 0)
        nodes = [inline.node(item, f"{path}{{{item!r:.80}}}", depth + 1) for item in obj]
        return [Tag.SET if type(obj) is set else Tag.FROZENSET, *sorted(nodes, key=_pack)]

    def dict_node(self, obj: dict[object, object], path: str, depth: int) -> object:
        return [_DICT_TAGS[type(obj)], *self._entries(obj, path, depth)]

    def defaultdict_node(self, obj: defaultdict[object, object], path: str, depth: int) -> object:
        for name, factory in FACTORIES.items():
            if obj.default_factory is factory:
                return [Tag.DEFAULT_DICT, name, *self._entries(obj, path, depth)]
        raise _refused(path, obj, f"its factory {obj.default_factory!r} is none of {', '.join(FACTORIES)}")

    def scalar_node(self, obj: np.generic, path: str) -> object:
        text = storable_dtype(obj.dtype)
        if text is None or type(obj) is not obj.dtype.type:
            raise _refused(path, obj, f"numpy dtype {obj.dtype}")
        return [Tag.SCALAR, text, self._bytes_or_name(np.asarray(obj).tobytes(), path)]

    def array_node(self, obj: np.ndarray[Any, Any], path: str) -> object:
        text = storable_dtype(obj.dtype)
        if text is None:
            raise _refused(path, obj, f"numpy dtype {obj.dtype}")
        # Viewed as bytes first: buffers of dates are not exported. A view, so nothing is copied before extraction.
        flat = np.ascontiguousarray(obj).reshape(-1).view(np.uint8)
        return [Tag.ARRAY, text, list(obj.shape), self._bytes_or_name(flat.data, path)]

    def _items(self, items: Iterable[object], path: str, depth: int) -> list[object]:
        return [self.node(item, f"{path}[{position}]", depth + 1) for position, item in enumerate(items)]

    def _entries(self, obj: dict[Any, Any], path: str, depth: int) -> list[object]:
        nodes: list[object] = []
        for key, item in obj.items():
            nodes.append(self.node(key, f"{path}.keys()[{key!r:.80}]", depth + 1))
            nodes.append(self.node(item, f"{path}[{key!r:.80}]", depth + 1))
        return nodes

    def _bytes_or_name(self, data: Buffer, path: str) -> object:
        if self._extract is None or len(data) <= self._extract_over_bytes:
            return data
        unique = path
        while unique in self._extracted_paths:
            unique += "'"
        self._extracted_paths.add(unique)
        return [Tag.EXTRACTED, self._extract(unique, data)]


def _pack_ints(items: Iterable[object]) -> bytes | None:
    try:
        return np.array(items, "<i8").tobytes()
    except OverflowError:
        return None


def _int_node(obj: int) -> object:
    if -(1 << 63) <= obj < 1 << 64:
        return obj
    return [Tag.BIG_INT, obj.to_bytes((obj + (obj < 0)).bit_length() // 8 + 1, "little", signed=True)]


def _complex_node(obj: complex) -> object:
    return [Tag.COMPLEX, obj.real, obj.imag]


_DICT_TAGS: dict[type, Tag] = {dict: Tag.DICT, OrderedDict: Tag.ORDERED_DICT, Counter: Tag.COUNTER}

# All by exact type: a subclass (an enum, a named tuple) would come back as its base, so it is refused.
_PLAIN_TYPES = frozenset((type(None), bool, float))
_NUMBERS: dict[type, Callable[[Any], object]] = {int: _int_node, complex: _complex_node}
_LEAVES: dict[type, Callable[[_Encoder, Any, str], object]] = {
    str: _Encoder.str_node,
    bytes: _Encoder.bytes_node,
    bytearray: _Encoder.bytearray_node,
    np.ndarray: _Encoder.array_node,
}
_CONTAINERS: dict[type, Callable[[_Encoder, Any, str, int], object]] = {
    list: _Encoder.sequence_node,
    tuple: _Encoder.sequence_node,
    deque: _Encoder.deque_node,
    set: _Encoder.set_node,
    frozenset: _Encoder.set_node,
    dict: _Encoder.dict_node,
    OrderedDict: _Encoder.dict_node,
    Counter: _Encoder.dict_node,
    defaultdict: _Encoder.defaultdict_node,
}
