"""Nested dicts and lists that mix tensors with other values: taken apart into named leaves, and put together again.

A dict or list without a tensor, `Sharded` or `PerRank` inside is one value. What is taken apart leaves a structure, a
plain nested list, so that key types, order and container types come back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shardkeep.errors import StateError, UnsupportedValue
from shardkeep.format.names import join_name, plain_text
from shardkeep.pytorch.marks import PerRank
from shardkeep.pytorch.pieces import Parts, TensorLike, is_tensor_like
from shardkeep.store import structures
from shardkeep.store.structures import (
    ABSENT,
    PER_RANK_LEAF,
    TENSOR_LEAF,
    VALUE_LEAF,
    Structure,
    leaf_kinds,
    part_of,
    structure_path,
)

__all__ = [
    "ABSENT",
    "PER_RANK_LEAF",
    "TENSOR_LEAF",
    "VALUE_LEAF",
    "Leaves",
    "Structure",
    "holds_tensors",
    "leaf_kinds",
    "part_of",
    "put_together",
    "structure_path",
    "take_apart",
    "update_in_place",
]


@dataclass(slots=True)
class Leaves:
    """The leaves of a tree by path, in order."""

    structure: Structure = VALUE_LEAF
    tensors: dict[Parts, TensorLike] = field(default_factory=dict)
    values: dict[Parts, Any] = field(default_factory=dict)
    per_rank: dict[Parts, Any] = field(default_factory=dict)

    @property
    def paths(self) -> set[Parts]:
        """The paths of all leaves."""
        return {*self.tensors, *self.values, *self.per_rank}


def take_apart(root: Any, parts: Parts) -> Leaves:
    """The leaves of `root`, whose path is `parts`. A root dict is always opened, so that each key is judged alone."""
    leaves = Leaves()
    leaves.structure = _open(root, parts, leaves, is_root=True)
    return leaves


def _open(node: Any, parts: Parts, leaves: Leaves, *, is_root: bool = False) -> Structure:
    if is_tensor_like(node):
        leaves.tensors[parts] = node
        return TENSOR_LEAF
    if isinstance(node, PerRank):
        leaves.per_rank[parts] = node.value
        return PER_RANK_LEAF
    if _is_opened(node, is_root=is_root):
        return [_container(node, parts), _open_items(node, parts, leaves)]
    leaves.values[parts] = node
    return VALUE_LEAF


def _is_opened(node: Any, *, is_root: bool) -> bool:
    return (is_root and isinstance(node, dict)) or holds_tensors(node)


def holds_tensors(node: Any) -> bool:
    """Whether a tensor or a mark is inside the dicts, lists and tuples of `node`."""
    if isinstance(node, dict):
        return any(holds_tensors(item) for item in node.values())
    if isinstance(node, list | tuple):
        return any(holds_tensors(item) for item in node)
    return is_tensor_like(node) or isinstance(node, PerRank)


def _container(node: Any, parts: Parts) -> str:
    if isinstance(node, dict):
        return "ordered_dict" if isinstance(node, OrderedDict) else "dict"
    if isinstance(node, tuple) and type(node) is not tuple:
        raise UnsupportedValue(
            f"{plain_text(join_name(parts))} is a {type(node).__name__} with tensors inside; use a tuple or a dict"
        )
    return "list" if isinstance(node, list) else "tuple"


def _open_items(node: Any, parts: Parts, leaves: Leaves) -> list[Any]:
    items = node.items() if isinstance(node, dict) else enumerate(node)
    opened: list[Any] = []
    keys: dict[str, Any] = {}
    for key, item in items:
        part = part_of(key)
        if part in keys:
            raise StateError(
                f"the keys {keys[part]!r} and {key!r} of {plain_text(join_name(parts))} have the same name; rename one"
            )
        keys[part] = key
        opened.append([key, _open(item, (*parts, part), leaves)])
    return opened


def put_together(structure: Structure, parts: Parts, leaf: Callable[[Parts, str], Any]) -> Any:
    """The tree of a structure, with `leaf(path, kind)` for each leaf; leaves that give ABSENT are left out."""

    def held(path: Parts, kind: str) -> Any:
        found = leaf(path, kind)
        return PerRank(found) if kind == PER_RANK_LEAF and found is not ABSENT else found

    return structures.put_together(structure, parts, held)


def update_in_place(live: Any, new: Any) -> Any:
    """Make `live` equal to `new`, keeping the identity of dicts, lists and PerRank holders; the object to keep."""
    if isinstance(live, dict) and isinstance(new, dict):
        merged = {key: update_in_place(live[key], item) if key in live else item for key, item in new.items()}
        live.clear()
        live.update(merged)
        return live
    if isinstance(live, list) and isinstance(new, list):
        live[:] = [update_in_place(live[i], item) if i < len(live) else item for i, item in enumerate(new)]
        return live
    if isinstance(live, PerRank) and isinstance(new, PerRank):
        live.value = update_in_place(live.value, new.value)
        return live
    return new
