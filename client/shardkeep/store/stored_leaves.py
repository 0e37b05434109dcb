"""What a checkpoint holds, as plain states look for it: by path, by a tied name, and by plain text where it is clear.

`Run.save` keeps the keys of a dict as they are and a dict without arrays as one value; the Checkpointer names modules'
tensors part by part and keeps such a dict member by member. Both are found from either side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shardkeep.format.names import join_name, plain_text, split_name
from shardkeep.protocol.messages import TensorInfo
from shardkeep.store.stored_values import stored_aliases
from shardkeep.store.structures import (
    ABSENT,
    PER_RANK_LEAF,
    TENSOR_LEAF,
    Parts,
    Structure,
    leaf_kinds,
    member_of,
    put_together,
    structure_path,
)


@dataclass(frozen=True, slots=True)
class FoundValue:
    """A value, and the paths of the stored ones that it was made of."""

    value: Any
    made_of: tuple[Parts, ...]


class StoredLeaves:
    """The tensors and values of one checkpoint."""

    def __init__(self, tensors: Iterable[TensorInfo], values: Mapping[Parts, Any]) -> None:
        self.tensors = {split_name(info.name): info for info in tensors}
        self._values = values  # decoded, perhaps read, only where looked up
        self._paths = {path for path in values if not path[0].startswith("@")}
        self._structures: dict[Parts, Structure] = {
            path[1:]: values[path] for path in values if path[:1] == structure_path(())
        }
        self._tensor_texts = _by_text(self.tensors)
        self._value_texts = _by_text({*self._paths, *self._structures})
        self._aliases = _aliases_by_text(stored_aliases(values))

    def below(self, tops: Iterable[str]) -> list[Parts]:
        """The paths of everything under these top-level names."""
        wanted = set(tops)
        return [path for path in (*self.tensors, *sorted(self._paths)) if path[0] in wanted]

    def tied(self, path: Parts) -> Parts | None:
        """The path under which the tensor is stored that has this name besides."""
        names = self._aliases.get(_text(path), set())
        stored = [split_name(name) for name in names]
        return stored[0] if len(stored) == 1 and stored[0] in self.tensors else None

    def tensor_reading(self, path: Parts) -> Parts | None:
        """The path of the only tensor whose name has the same plain text."""
        return _only(self._tensor_texts, path)

    def value_reading(self, path: Parts) -> Parts | None:
        """The path of the only value whose name has the same plain text."""
        return _only(self._value_texts, path)

    def value(self, path: Parts) -> FoundValue | None:
        """The value of exactly this path, put together if it is stored member by member."""
        if path in self._paths:
            return FoundValue(self._values[path], (path,))
        structure = self._structure_of(path)
        if structure is None or isinstance(structure, str):
            return None
        kinds = leaf_kinds(structure, path)
        if TENSOR_LEAF in kinds.values():
            return None
        if any(kind != PER_RANK_LEAF and leaf not in self._paths for leaf, kind in kinds.items()):
            return None
        built = put_together(structure, path, lambda leaf, _: self._values.get(leaf, ABSENT))
        return FoundValue(built, tuple(leaf for leaf in kinds if leaf in self._paths))

    def _structure_of(self, path: Parts) -> Structure | None:
        for length in range(len(path), 0, -1):
            structure = self._structures.get(path[:length])
            if structure is not None:
                return member_of(structure, path[length:])
        return None


def _text(path: Parts) -> str:
    return plain_text(join_name(path))


def _by_text(paths: Iterable[Parts]) -> dict[str, list[Parts]]:
    texts: dict[str, list[Parts]] = defaultdict(list)
    for path in paths:
        texts[_text(path)].append(path)
    return texts


def _only(texts: Mapping[str, list[Parts]], path: Parts) -> Parts | None:
    found = texts.get(_text(path), [])
    return found[0] if len(found) == 1 else None


def _aliases_by_text(stored: Mapping[str, str]) -> dict[str, set[str]]:
    aliases: dict[str, set[str]] = defaultdict(set)
    for alias, name in stored.items():
        aliases[plain_text(alias)].add(name)
    return aliases
