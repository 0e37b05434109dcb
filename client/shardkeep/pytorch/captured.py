"""What a capture gives: named tensors as views of live memory, and values.

How it is taken is in `capture`, how it is written back in `restore`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a named tensor that this rank holds: `tensor.shape == region.sizes`, a view of live memory."""

    region: Region
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True)
class Plain:
    """An ordinary tensor, held whole by an unknown number of ranks: it takes part in the inventory."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor whose regions are known: this rank is replica `position` of `count` that hold the same regions."""

    position: int = 0
    count: int = 1


Placement = Plain | Placed


@dataclass(frozen=True, slots=True, eq=False)
class CapturedTensor:
    """One named tensor as this rank knows it. No pieces: it knows the tensor and holds nothing of it.

    `name` is the joined name, `shape` the global shape. Pieces lie in row-major order of their offsets and do not
    overlap; empty regions are left out.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    kind: SliceKind
    pieces: tuple[Piece, ...]
    placement: Placement


@dataclass(frozen=True, slots=True, eq=False)
class CapturedValue:
    """Non-tensor state at a path of name parts. `per_rank`: it differs by rank on purpose."""

    path: tuple[str, ...]
    value: Any
    per_rank: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Capture:
    """Everything the training state is at one moment. `aliases`: further name of a tied tensor -> its stored one."""

    tensors: tuple[CapturedTensor, ...]
    values: tuple[CapturedValue, ...]
    aliases: dict[str, str]
