"""Gathers a capture: every item adds its tensors and values, ties are found on the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from shardkeep.errors import StateError
from shardkeep.format.fingerprints import fingerprint
from shardkeep.format.names import join_name, plain_text
from shardkeep.format.segments import SliceKind
from shardkeep.pytorch.captured import Capture, CapturedTensor, CapturedValue
from shardkeep.pytorch.pieces import Parts, TensorLike, captured_tensor
from shardkeep.pytorch.ties import Ties
from shardkeep.pytorch.trees import structure_path, take_apart
from shardkeep.store.stored_values import ALIASES


def digest_part(texts: Iterable[str]) -> str:
    """A part for the path of a value that speaks of these texts: ranks that speak of others leave it alone."""
    return fingerprint("\0".join(texts).encode()).hex()


@dataclass(slots=True)
class TensorNames:
    """The names of the live tensors that items name, so that optimizers can name their parameters."""

    by_identity: dict[int, list[Parts]] = field(default_factory=dict)
    by_name: dict[Parts, torch.Tensor] = field(default_factory=dict)

    def add(self, parts: Parts, tensor: torch.Tensor) -> None:
        """Register a name; the first of a tensor is the one under which it is stored."""
        self.by_identity.setdefault(id(tensor), []).append(parts)
        self.by_name[parts] = tensor

    def of(self, tensor: torch.Tensor) -> list[Parts]:
        """The names of a tensor, first registered first; none if no item names it."""
        return self.by_identity.get(id(tensor), [])


class Collector:
    """A capture in the making."""

    def __init__(self, names: TensorNames) -> None:
        self.names = names
        self._ties = Ties()
        self._tensors: dict[str, CapturedTensor] = {}
        self._values: list[CapturedValue] = []
        self._aliases: dict[str, str] = {}

    def add_module_tensor(self, parts: Parts, tensor: torch.Tensor, kind: SliceKind) -> None:
        """A parameter or buffer: stored once, however many names it has."""
        name = join_name(parts)
        first = self._ties.first_name(tensor, name)
        if first != name:
            self._aliases[name] = first
        else:
            self.add_tensor(parts, tensor, kind)

    def add_tensor(self, parts: Parts, tensor: TensorLike, kind: SliceKind) -> None:
        """Any other tensor."""
        self.add_captured(captured_tensor(parts, tensor, kind))

    def add_captured(self, captured: CapturedTensor) -> None:
        """A tensor whose pieces are known. StateError for a second one of the same name."""
        if captured.name in self._tensors:
            raise StateError(f"two tensors are named {plain_text(captured.name)!r}; rename one of the state's keys")
        self._tensors[captured.name] = captured

    def add_value(self, path: Parts, value: Any, *, per_rank: bool = False) -> None:
        """A value at a path."""
        self._values.append(CapturedValue(path, value, per_rank))

    def add_tree(self, root: Any, parts: Parts, kind: SliceKind) -> None:
        """A nested container, leaf by leaf, and its structure."""
        leaves = take_apart(root, parts)
        for path, tensor in leaves.tensors.items():
            self.add_tensor(path, tensor, kind)
        for path, value in leaves.values.items():
            self.add_value(path, value)
        for path, value in leaves.per_rank.items():
            self.add_value(path, value, per_rank=True)
        self.add_value(structure_path(parts), leaves.structure)

    def finish(self) -> Capture:
        """The capture."""
        if self._aliases:
            digest = digest_part(f"{alias}={name}" for alias, name in self._aliases.items())
            self.add_value((*ALIASES, digest), dict(self._aliases))
        return Capture(tuple(self._tensors.values()), tuple(self._values), dict(self._aliases))
