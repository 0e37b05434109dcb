"""Values as strict JSON: what JSON has as itself, everything else as an object with `$type`. Nothing is executed.

`{"$type": "tuple", "items": [...]}`, likewise list-like types; `{"$type": "dict", "items": [[key, value], ...]}` for
dicts whose keys JSON cannot have, likewise dict-like types; bytes and arrays in base64. docs/cli.md lists them all.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.segments import ValueRecord

_TYPE = "$type"


@dataclass(frozen=True, slots=True)
class ValuesDocument:
    """Values by stored path. `encoded`: paths that only their package can decode; they are kept in stored form."""

    values: Mapping[str, Any]
    encoded: tuple[str, ...]
    described: tuple[str, ...]
    """Paths that hold something JSON can only describe."""


def values_document(records: Sequence[ValueRecord], decode: Callable[[ValueRecord], object]) -> ValuesDocument:
    """The values as JSON, each by itself, so that one that cannot be decoded spoils no other."""
    values: dict[str, Any] = {}
    encoded, described = [], []
    for record in records:
        try:
            value = decode(record)
        except FormatError as exc:
            values[record.path] = {_TYPE: "encoded", "reason": str(exc), "base64": _base64(record.encoded)}
            encoded.append(record.path)
            continue
        writer = _Writer()
        values[record.path] = writer.json(value)
        if writer.has_described:
            described.append(record.path)
    return ValuesDocument(values, tuple(encoded), tuple(described))


class _Writer:
    def __init__(self) -> None:
        self.has_described = False

    def json(self, value: object) -> Any:
        """The value as JSON has it."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {_TYPE: "float", "text": repr(value)}
        if type(value) is list:
            return [self.json(item) for item in value]
        if isinstance(value, dict):
            return self._mapping(value)
        if type(value) in (tuple, set, frozenset):
            return {_TYPE: type(value).__name__, "items": [self.json(item) for item in _items(value)]}
        if isinstance(value, deque):
            return {_TYPE: "deque", "maxlen": value.maxlen, "items": [self.json(item) for item in value]}
        return self._scalar_or_bytes(value)

    def _mapping(self, value: dict[Any, Any]) -> Any:
        plain = type(value) is dict and all(type(key) is str and not key.startswith("$") for key in value)
        if plain:
            return {key: self.json(item) for key, item in value.items()}
        found: dict[str, Any] = {_TYPE: _mapping_type(value)}
        if isinstance(value, defaultdict):
            found["factory"] = getattr(value.default_factory, "__name__", None)
        found["items"] = [[self.json(key), self.json(item)] for key, item in value.items()]
        return found

    def _scalar_or_bytes(self, value: object) -> Any:
        if isinstance(value, bytes | bytearray):
            return {_TYPE: type(value).__name__, "base64": _base64(value)}
        if type(value) is complex:
            return {_TYPE: "complex", "real": self.json(value.real), "imag": self.json(value.imag)}
        if isinstance(value, np.generic):
            return {_TYPE: "numpy", "dtype": value.dtype.str, "base64": _base64(value.tobytes()), "text": str(value)}
        if isinstance(value, np.ndarray):
            data = _base64(np.ascontiguousarray(value).tobytes())
            return {_TYPE: "ndarray", "dtype": value.dtype.str, "shape": list(value.shape), "base64": data}
        self.has_described = True
        return {_TYPE: f"{type(value).__module__}.{type(value).__qualname__}", "text": repr(value)}


def _items(value: Any) -> list[object]:
    return list(value) if isinstance(value, tuple) else sorted(value, key=repr)


def _mapping_type(value: dict[Any, Any]) -> str:
    for kind in (Counter, OrderedDict, defaultdict):
        if isinstance(value, kind):
            return kind.__name__
    return "dict"


def _base64(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode("ascii")
