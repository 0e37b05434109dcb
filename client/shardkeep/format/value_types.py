"""Value types other packages add (tensors, torch.Size, ...), so that this package need not import theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardkeep.errors import FormatError


@dataclass(frozen=True, slots=True)
class ValueType:
    """How values of `type_` and its subclasses become a plain value, and come back from it."""

    tag: str
    type_: type
    to_plain: Callable[[Any], object]
    from_plain: Callable[[Any], object]


_BY_TYPE: dict[type, ValueType] = {}
_BY_TAG: dict[str, ValueType] = {}


def register_value_type(
    tag: str, type_: type, to_plain: Callable[[Any], object], from_plain: Callable[[Any], object]
) -> None:
    """Let `encode_value` store values of `type_` under `tag`.

    `to_plain` gives a value that is storable without the extension; for one it cannot store it raises
    UnsupportedValue. `from_plain` must check its argument, which comes from untrusted bytes, and raise ValueError,
    TypeError or FormatError. Registering a tag again replaces it.
    """
    value_type = ValueType(tag, type_, to_plain, from_plain)
    before = _BY_TAG.pop(tag, None)
    if before is not None:
        _BY_TYPE.pop(before.type_, None)
    _BY_TAG[tag] = _BY_TYPE[type_] = value_type


def value_type_of(type_: type) -> ValueType | None:
    """The extension for this type or its nearest registered base, or None."""
    for base in type_.__mro__:
        if base in _BY_TYPE:
            return _BY_TYPE[base]
    return None


def value_type_tagged(tag: str) -> ValueType:
    """The extension stored under `tag`; FormatError if this process has none."""
    value_type = _BY_TAG.get(tag)
    if value_type is None:
        raise FormatError(f"a value of type {tag!r} needs the package that registers it (for torch: shardkeep.pytorch)")
    return value_type
