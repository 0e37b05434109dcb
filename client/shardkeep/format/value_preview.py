"""`preview_value`: the beginning of a stored value as JSON for people to look at. Nothing is built or executed.

It walks the stored nodes, so it needs no package that registered a type, and takes no longer however big a leaf is.
What JSON lacks is an object with `$type`; bytes and arrays are summarised; numbers that a double cannot hold are texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.buffers import Buffer
from shardkeep.format.value_nodes import MAX_DEPTH, Tag

PREVIEW_CHARACTERS = 2000
MAX_PREVIEWED_BYTES = 1 << 20
"""Of one value's encoding, whose big leaves are elsewhere. A larger one is only named, so that memory is bounded."""

_MAX_EXACT_INT = (1 << 53) - 1
_MAX_SHOWN_INT_BYTES = 256
_MAX_MEMBERS = 64
_START_BYTES = 16
_NUMBER_TYPES = frozenset({"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"})


@dataclass(frozen=True, slots=True)
class ValuePreview:
    """`text` is strict JSON, unless `cut`: then it is the beginning of some. `members`: a dict's first text keys."""

    text: str
    cut: bool
    members: tuple[str, ...] = ()


def preview_value(encoded: Buffer, *, limit: int = PREVIEW_CHARACTERS) -> ValuePreview:
    """The first `limit` characters. Never fails: what is malformed is shown as such."""
    if len(encoded) > MAX_PREVIEWED_BYTES:
        return ValuePreview(_object("value", size=len(encoded)), cut=True)
    try:
        node = msgspec.msgpack.decode(encoded)
        writer = _Writer(limit)
        is_whole = writer.write(node)
    except (FormatError, msgspec.MsgspecError, RecursionError, ValueError, OverflowError, TypeError) as exc:
        return ValuePreview(_object("malformed", reason=str(exc)[:200]), cut=False)
    return ValuePreview(writer.text, cut=not is_whole, members=_members(node))


class _Full(Exception):
    """The preview has all the characters it may have."""


class _Writer:
    def __init__(self, limit: int) -> None:
        self._left = limit
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """What was written."""
        return "".join(self._parts)

    def write(self, node: object) -> bool:
        """Whether all of it could be written."""
        try:
            self._value(node, 0)
        except _Full:
            return False
        return True

    def _put(self, text: str) -> None:
        self._parts.append(text[: self._left])
        self._left -= len(text)
        if self._left < 0:
            raise _Full

    def _text(self, text: str) -> None:
        self._put(json.dumps(text[: self._left + 1], ensure_ascii=False))

    def _value(self, node: Any, depth: int) -> None:
        if type(node) is str:
            self._text(node)
        elif type(node) is bytes:
            self._put(_bytes_object("bytes", node))
        elif type(node) is list:
            self._tagged(node, depth)
        elif node is None or type(node) in (bool, int, float):
            self._put(_scalar_text(node))
        else:
            raise FormatError(f"a value holds a {type(node).__name__} that is no tagged array")

    def _tagged(self, node: list[Any], depth: int) -> None:
        if depth > MAX_DEPTH:
            raise FormatError(f"a value is nested more than {MAX_DEPTH} deep")
        if not node or type(node[0]) is not int:
            raise FormatError("a value holds an array without a tag")
        tag, body = node[0], node[1:]
        if tag == Tag.LIST:
            self._items(body, depth)
        elif tag == Tag.DICT and _is_plain(body):
            self._plain_members(body, depth)
        elif tag in _SEQUENCES:
            self._wrapped(_SEQUENCES[tag], lambda: self._items(body[tag == Tag.DEQUE :], depth))
        elif tag in _MAPPINGS:
            self._wrapped(_MAPPINGS[tag], lambda: self._entries(body[tag == Tag.DEFAULT_DICT :], depth))
        elif tag == Tag.EXTENSION and len(body) == 2 and type(body[0]) is str:
            self._wrapped(body[0], lambda: self._value(body[1], depth + 1), member="value")
        elif tag in (Tag.INT_LIST, Tag.INT_TUPLE) and len(body) == 1:
            self._packed_ints(Tag(tag), body[0])
        else:
            self._put(_leaf_text(tag, body))

    def _wrapped(self, type_: str, write: Callable[[], None], *, member: str = "items") -> None:
        self._put('{"$type": ')
        self._text(type_)
        self._put(f', "{member}": ')
        write()
        self._put("}")

    def _items(self, body: Sequence[Any], depth: int) -> None:
        self._put("[")
        for position, item in enumerate(body):
            self._put(", " if position else "")
            self._value(item, depth + 1)
        self._put("]")

    def _plain_members(self, body: Sequence[Any], depth: int) -> None:
        self._put("{")
        for position in range(0, len(body), 2):
            self._put(", " if position else "")
            self._text(body[position])
            self._put(": ")
            self._value(body[position + 1], depth + 1)
        self._put("}")

    def _entries(self, body: Sequence[Any], depth: int) -> None:
        if len(body) % 2:
            raise FormatError("a stored dict has a key without a value")
        self._put("[")
        for position in range(0, len(body), 2):
            self._put(", [" if position else "[")
            self._value(body[position], depth + 1)
            self._put(", ")
            self._value(body[position + 1], depth + 1)
            self._put("]")
        self._put("]")

    def _packed_ints(self, tag: Tag, data: object) -> None:
        name = "list" if tag == Tag.INT_LIST else "tuple"
        if not isinstance(data, bytes):
            self._put(_stored_object(name, data))
            return
        if len(data) % 8:
            raise FormatError("a stored list of ints is not a whole number of 8 bytes")
        numbers = np.frombuffer(data, "<i8")[: self._left + 1].tolist()  # each takes a character at least
        if tag == Tag.INT_LIST:
            self._items(numbers, 0)
        else:
            self._wrapped(name, lambda: self._items(numbers, 0))


def _scalar_text(value: Any) -> str:
    if type(value) is int and abs(value) > _MAX_EXACT_INT:
        return json.dumps(str(value))
    if type(value) is float and not math.isfinite(value):
        return json.dumps("NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity"))
    return json.dumps(value)


def _leaf_text(tag: Any, body: Any) -> str:
    match tag, body:
        case Tag.BIG_INT, [bytes(data)] if len(data) <= _MAX_SHOWN_INT_BYTES:
            return json.dumps(str(int.from_bytes(data, "little", signed=True)))
        case Tag.BIG_INT, [bytes(data)]:
            return _object("int", size=len(data))
        case Tag.COMPLEX, [float(real), float(imag)]:
            return f'{{"$type": "complex", "real": {_scalar_text(real)}, "imag": {_scalar_text(imag)}}}'
        case Tag.SCALAR, [str(dtype), data]:
            return _scalar_object(dtype, data)
        case Tag.ARRAY, [str(dtype), list(shape), data] if len(shape) <= _MAX_MEMBERS:
            dims = [size for size in shape if type(size) is int]
            size = len(data) if isinstance(data, bytes) else None
            return _object("ndarray", dtype=dtype[:_MAX_MEMBERS], shape=dims, size=size)
        case Tag.BYTEARRAY, [data]:
            return _bytes_object("bytearray", data)
        case Tag.EXTRACTED, [_]:
            return _stored_object("bytes", [tag, *body])
        case Tag.TEXT, [data]:
            return _stored_object("str", data)
    raise FormatError(f"a value has the unknown tag {tag}, or fields that do not suit it")


def _scalar_object(dtype: str, data: object) -> str:
    """A numpy scalar, with its number where it is one."""
    if isinstance(data, bytes) and dtype[1:] in _NUMBER_TYPES:
        item = np.frombuffer(data, np.dtype(dtype))
        if len(item) == 1:
            return f'{{"$type": "numpy", "dtype": {json.dumps(dtype)}, "value": {_scalar_text(item[0].item())}}}'
    return _object("numpy", dtype=dtype[:_MAX_MEMBERS])


def _bytes_object(type_: str, data: object) -> str:
    if not isinstance(data, bytes):
        return _stored_object(type_, data)
    return _object(type_, size=len(data), start=data[:_START_BYTES].hex())


def _stored_object(type_: str, node: object) -> str:
    """A leaf whose bytes are in a slice of the checkpoint."""
    match node:
        case [Tag.EXTRACTED, str(name)]:
            return _object(type_, stored=name[:256])
    raise FormatError("a value has neither bytes nor the name of a slice where one belongs")


def _object(type_: str, **members: object) -> str:
    return json.dumps({"$type": type_, **members}, ensure_ascii=False)


def _is_plain(body: Sequence[Any]) -> bool:
    """Whether JSON can have it as an object that nobody takes for one of ours."""
    return len(body) % 2 == 0 and all(type(key) is str and not key.startswith("$") for key in body[::2])


def _members(node: object) -> tuple[str, ...]:
    if not isinstance(node, list) or not node or node[0] != Tag.DICT:
        return ()
    return tuple(key for key in node[1 : 1 + 2 * _MAX_MEMBERS : 2] if isinstance(key, str))


_SEQUENCES: dict[int, str] = {
    Tag.TUPLE: "tuple",
    Tag.SET: "set",
    Tag.FROZENSET: "frozenset",
    Tag.DEQUE: "deque",
}
_MAPPINGS: dict[int, str] = {
    Tag.DICT: "dict",
    Tag.ORDERED_DICT: "OrderedDict",
    Tag.COUNTER: "Counter",
    Tag.DEFAULT_DICT: "defaultdict",
}
