"""What is kept of a dict, list or tuple that was taken apart into named leaves, so that it can be put together again.

Taking apart belongs to the PyTorch state (`shardkeep.pytorch.trees`); reading needs no torch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

Parts = tuple[str, ...]
Structure = str | list[Any]
"""A leaf's kind, or [container, [[key, structure], ...]]."""

STRUCTURE_PART: Final = "@structure"
TENSOR_LEAF: Final = "tensor"
VALUE_LEAF: Final = "value"
PER_RANK_LEAF: Final = "per_rank"


class Absent:
    """In place of a leaf that the source does not have."""


ABSENT: Final = Absent()


def structure_path(parts: Parts) -> Parts:
    """The path at which the structure of the tree at `parts` is kept as a value."""
    return (STRUCTURE_PART, *parts)


def part_of(key: Any) -> str:
    """The name part of a dict key or list index."""
    return key if isinstance(key, str) else str(key)


def leaf_kinds(structure: Structure, parts: Parts) -> dict[Parts, str]:
    """The kind of each leaf of a stored structure, by path."""
    if isinstance(structure, str):
        return {parts: structure}
    kinds: dict[Parts, str] = {}
    for key, item in structure[1]:
        kinds.update(leaf_kinds(item, (*parts, part_of(key))))
    return kinds


def member_of(structure: Structure, below: Parts) -> Structure | None:
    """The structure of what lies at `below` within a tree; None if it has no such member."""
    for part in below:
        if isinstance(structure, str):
            return None
        found = next((item for key, item in structure[1] if part_of(key) == part), None)
        if found is None:
            return None
        structure = found
    return structure


def put_together(structure: Structure, parts: Parts, leaf: Callable[[Parts, str], Any]) -> Any:
    """The tree of a structure, with `leaf(path, kind)` for each leaf; leaves that give ABSENT are left out."""
    if isinstance(structure, str):
        return leaf(parts, structure)
    container, items = structure
    built = [(key, put_together(item, (*parts, part_of(key)), leaf)) for key, item in items]
    kept = [(key, item) for key, item in built if item is not ABSENT]
    if container in ("dict", "ordered_dict"):
        return OrderedDict(kept) if container == "ordered_dict" else dict(kept)
    return [item for _, item in kept] if container == "list" else tuple(item for _, item in kept)
