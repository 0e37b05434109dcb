"""Tensor names: tuples of parts joined by a dot, with dots and backslashes inside a part escaped.

So {"a.b": t} and {"a": {"b": t}} never collide. Nothing is folded or normalised: names that differ only by case or by
Unicode form are different names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardkeep.errors import FormatError

MAX_NAME_BYTES = 4096
"""The longest joined name, in UTF-8 bytes."""

_PART = re.compile(r"(?:[^\\.]|\\[\\.])*", re.DOTALL)
_NAME = re.compile(r"(?:[^\\]|\\[\\.])*", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\.])")


def join_name(parts: Sequence[str]) -> str:
    """The joined name of at least one part; parts may be empty."""
    if isinstance(parts, str):
        raise TypeError("join_name takes a sequence of parts, not one string")
    if not parts:
        raise FormatError("a name needs at least one part")
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in parts)


def split_name(name: str) -> tuple[str, ...]:
    """The parts of a joined name; the inverse of `join_name`. FormatError on a stray backslash."""
    if "\\" not in name:
        return tuple(name.split("."))
    _check_escapes(name)
    parts = []
    position = 0
    while True:
        match = _PART.match(name, position)
        assert match is not None  # the pattern matches the empty string
        parts.append(plain_text(match.group()))
        if match.end() == len(name):
            return tuple(parts)
        position = match.end() + 1


def plain_text(name: str) -> str:
    """The name with escapes removed, as a person would write it. Several names can have the same plain text."""
    return _ESCAPED.sub(r"\1", name) if "\\" in name else name


def check_name(name: str) -> None:
    """FormatError unless `name` is a joined name that can be stored."""
    if not name:
        raise FormatError("a name is empty")
    if "\0" in name:
        raise FormatError(f"the name {name[:80]!r} contains NUL")
    try:
        size_bytes = len(name.encode("utf-8"))
    except UnicodeEncodeError as exc:
        raise FormatError(f"the name {name[:80]!r} contains lone surrogates, which UTF-8 cannot store") from exc
    if size_bytes > MAX_NAME_BYTES:
        raise FormatError(f"the name {name[:80]!r}... takes {size_bytes} bytes; at most {MAX_NAME_BYTES} are allowed")
    _check_escapes(name)


def _check_escapes(name: str) -> None:
    if "\\" in name and _NAME.fullmatch(name) is None:
        raise FormatError(f"the name {name[:80]!r} has a backslash that escapes neither a dot nor a backslash")
