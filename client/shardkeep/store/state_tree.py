"""A plain state, a nested dict, as named tensors and values.

Arrays are tensors under the keys that lead to them. Dicts that hold arrays somewhere are walked, and so are lists and
tuples that do, by position; everything else, a dict without arrays included, is one value and is stored and replaced as
a whole, so that keys of any type come back as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardkeep.errors import StateError
from shardkeep.format.names import check_name, join_name, plain_text
from shardkeep.store.extensions import LeafAdapter

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TensorLeaf:
    """An array in the state and the adapter that knows its kind; `name` is the joined path."""

    path: Path
    name: str
    array: object
    adapter: LeafAdapter


@dataclass(frozen=True, slots=True)
class ValueLeaf:
    """A value in the state. `replace` puts another in its place; in a tuple it cannot."""

    path: Path
    name: str
    value: object
    replace: Callable[[object], None]


def walk(state: Mapping[str, Any], adapters: Sequence[LeafAdapter]) -> Iterator[TensorLeaf | ValueLeaf]:
    """Every leaf of the state, in its own order; StateError for keys that would give two leaves one name."""
    if not isinstance(state, Mapping):
        raise StateError(f"a state is a dict with names as keys, not a {type(state).__name__}")
    for key in state:
        if not isinstance(key, str):
            raise StateError(f"the top-level key {key!r} of a state is not a str")
        if key.startswith("@"):
            raise StateError(f"the top-level key {key!r} begins with @, which names of Shardkeep's own do")
    yield from _walk_members(state, (), adapters)


def _walk_members(container: Any, path: Path, adapters: Sequence[LeafAdapter]) -> Iterator[TensorLeaf | ValueLeaf]:
    for part, key, member in _members(container, path):
        below = (*path, part)
        name = join_name(below)
        check_name(name)
        adapter = _adapter_of(member, adapters)
        if adapter is not None:
            yield TensorLeaf(below, name, member, adapter)
        elif _is_container(member) and _holds_arrays(member, adapters):
            yield from _walk_members(member, below, adapters)
        else:
            yield ValueLeaf(below, name, member, _replacer(container, key, below))


def _members(container: Any, path: Path) -> Iterator[tuple[str, Any, Any]]:
    if not isinstance(container, Mapping):
        yield from ((str(position), position, member) for position, member in enumerate(container))
        return
    seen: dict[str, object] = {}
    for key, member in container.items():
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise StateError(
                f"{_readable(path)} holds arrays under the key {key!r}; only str and int keys give them names"
            )
        part = str(key)
        if part in seen:
            raise StateError(f"{_readable(path)} has arrays under {seen[part]!r} and {key!r}, which make one name")
        seen[part] = key
        yield part, key, member


def _replacer(container: Any, key: Any, path: Path) -> Callable[[object], None]:
    def replace(value: object) -> None:
        try:
            container[key] = value
        except TypeError as exc:
            raise StateError(
                f"{_readable(path)} is in a {type(container).__name__}, whose members cannot be replaced; use a list"
            ) from exc

    return replace


def is_replaceable(leaf: ValueLeaf, state: Mapping[str, Any]) -> bool:
    """Whether the leaf's container lets its members be replaced."""
    container: Any = state
    for part in leaf.path[:-1]:
        container = _member(container, part)
    return hasattr(container, "__setitem__")


def _member(container: Any, part: str) -> Any:
    if not isinstance(container, Mapping):
        return container[int(part)]
    return container[part] if part in container else container[int(part)]


def _adapter_of(value: object, adapters: Sequence[LeafAdapter]) -> LeafAdapter | None:
    return next((adapter for adapter in adapters if adapter.accepts(value)), None)


def _is_container(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple)


def _holds_arrays(value: Any, adapters: Sequence[LeafAdapter]) -> bool:
    members = value.values() if isinstance(value, Mapping) else value
    return any(
        _adapter_of(member, adapters) is not None or (_is_container(member) and _holds_arrays(member, adapters))
        for member in members
    )


def _readable(path: Path) -> str:
    return repr(plain_text(join_name(path))) if path else "the state"
