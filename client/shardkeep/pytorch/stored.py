"""What a checkpoint holds, looked up by name: exact names, tied aliases, and plain text where it is unambiguous."""

from __future__ import annotations

import difflib
import functools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from shardkeep.format.names import join_name, plain_text, split_name
from shardkeep.pytorch.pieces import Parts
from shardkeep.store.reading import RegionRead
from shardkeep.store.stored_values import ReadableValues, stored_aliases

_Entry = TypeVar("_Entry")


class StoredTensor(Protocol):
    """A tensor of a committed checkpoint."""

    @property
    def name(self) -> str:
        """The joined name."""
        ...

    @property
    def dtype(self) -> str:
        """The stored dtype."""
        ...

    @property
    def shape(self) -> Sequence[int]:
        """The global shape."""
        ...


class StoredInfo(Protocol):
    """The part of a checkpoint's description that restoring needs."""

    @property
    def world_size(self) -> int:
        """How many ranks saved it."""
        ...


class StoredState(Protocol):
    """What restoring needs of a checkpoint; `shardkeep.store.checkpoint.Checkpoint` is one."""

    def tensors(self) -> Sequence[StoredTensor]:
        """Every tensor."""
        ...

    @property
    def info(self) -> StoredInfo:
        """What the service says of it."""
        ...

    def readable_values(self, rank: int | None = None) -> ReadableValues:
        """The values for `rank` of as many ranks as saved it, or for any rank of another world size (None)."""
        ...

    def read(self, requests: Sequence[RegionRead], *, rank: int | None = None) -> None:
        """Read regions, verified, straight into their destinations; `rank` chooses among differing buffers."""
        ...


class Stored:
    """The names of one checkpoint as this rank may read them."""

    def __init__(self, tensors: Iterable[StoredTensor], values: ReadableValues) -> None:
        """`values`: those this rank may read; what they withhold other ranks keep for themselves."""
        self.tensors: dict[str, StoredTensor] = {tensor.name: tensor for tensor in tensors}
        self.values = values
        self._by_text: dict[str, list[str]] = defaultdict(list)
        self._below: dict[Parts, list[str]] = defaultdict(list)
        for name in self.tensors:
            self._by_text[plain_text(name)].append(name)
            _add_prefixes(self._below, split_name(name), name)
        self._values_below: dict[Parts, list[Parts]] = defaultdict(list)
        self._values_by_text: dict[str, list[Parts]] = defaultdict(list)
        for path in self.values:
            _add_prefixes(self._values_below, path, path)
            self._values_by_text[readable(path)].append(path)
        self._unreadable_below: dict[Parts, list[Parts]] = defaultdict(list)
        for path in sorted(values.withheld):
            _add_prefixes(self._unreadable_below, path, path)

    @functools.cached_property
    def aliases(self) -> dict[str, str]:
        """Each further name of a tied tensor with the stored one."""
        return stored_aliases(self.values)

    def find(self, name: str) -> StoredTensor | None:
        """The tensor of this name, of the tied name it stands for, or with the same plain text if only one has it."""
        found = self.tensors.get(name) or self.tensors.get(self.aliases.get(name, ""))
        if found is not None:
            return found
        same_text = self._by_text.get(plain_text(name), [])
        return self.tensors[same_text[0]] if len(same_text) == 1 else None

    def value_path(self, path: Parts) -> Parts | None:
        """The path itself if it has a value, else that of the only value with the same plain text."""
        if path in self.values:
            return path
        same_text = self._values_by_text.get(readable(path), [])
        return same_text[0] if len(same_text) == 1 else None

    def tensors_below(self, parts: Parts) -> list[str]:
        """The names that are `parts` or begin with them."""
        return self._below.get(parts, [])

    def values_below(self, parts: Parts) -> list[Parts]:
        """The value paths that are `parts` or begin with them."""
        return self._values_below.get(parts, [])

    def unreadable_below(self, parts: Parts) -> list[Parts]:
        """The paths of values that exist and that this rank may not use, below `parts`."""
        return self._unreadable_below.get(parts, [])

    def nearest(self, name: str, count: int = 3) -> list[str]:
        """The stored names most like `name`, as plain text; whole ones of the same last part first."""
        wanted = plain_text(name)
        texts = list(self._by_text)
        same_end = [text for text in texts if text.split(".")[-1] == wanted.split(".")[-1]]
        near = difflib.get_close_matches(wanted, same_end or texts, n=count, cutoff=0.3)
        return near or same_end[:count]


def _add_prefixes(below: dict[Parts, list[_Entry]], parts: Parts, entry: _Entry) -> None:
    for length in range(1, len(parts) + 1):
        below[parts[:length]].append(entry)


def readable(parts: Parts) -> str:
    """A path as a person would write it."""
    return plain_text(join_name(parts))
