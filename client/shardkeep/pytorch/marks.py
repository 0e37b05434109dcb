"""Marks by which a user says what a tensor or value is: a shard of something larger, or one rank's own.

DTensors need none: they know their region.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shardkeep.errors import ConfigurationError
from shardkeep.format.regions import Region

_ATTRIBUTE = "_shardkeep_mark"


def mark(tensor: torch.Tensor, *, shape: Sequence[int], offset: Sequence[int]) -> torch.Tensor:
    """Tag a local shard inside a module: `tensor` is the box at `offset` of a tensor of the global `shape`.

    Its optimizer state follows. Returns `tensor`. ConfigurationError if the box does not fit.
    """
    region = shard_region(tensor, shape=shape, offset=offset)
    setattr(tensor, _ATTRIBUTE, (tuple(int(size) for size in shape), region))
    return tensor


def mark_of(tensor: torch.Tensor) -> tuple[tuple[int, ...], Region] | None:
    """The global shape and region `mark` gave, or None for an unmarked tensor."""
    found: tuple[tuple[int, ...], Region] | None = getattr(tensor, _ATTRIBUTE, None)
    if found is not None and found[1].sizes != tuple(tensor.shape):
        raise ConfigurationError(
            f"a tensor marked as the box {found[1].sizes} now has shape {tuple(tensor.shape)}; mark it again"
        )
    return found


def shard_region(tensor: torch.Tensor, *, shape: Sequence[int], offset: Sequence[int]) -> Region:
    """The box that starts at `offset` and has the tensor's shape; ConfigurationError unless `shape` holds it."""
    sizes = tuple(tensor.shape)
    if len(shape) != len(sizes) or len(offset) != len(sizes) or any(start < 0 for start in offset):
        raise ConfigurationError(
            f"shape {tuple(shape)} and offset {tuple(offset)} do not fit a shard of shape {sizes}: "
            "give one non-negative number for each of its dimensions"
        )
    region = Region(tuple(int(start) for start in offset), sizes)
    if not region.within(tuple(int(size) for size in shape)):
        raise ConfigurationError(
            f"a shard of shape {sizes} at offset {tuple(offset)} lies outside the global shape {tuple(shape)}"
        )
    return region


class Sharded:
    """In a plain dict: `local` is the box at `offset` of a tensor of the global `shape`. Loaded in place."""

    __slots__ = ("local", "region", "shape")

    def __init__(self, local: torch.Tensor, *, shape: Sequence[int], offset: Sequence[int]) -> None:
        if not isinstance(local, torch.Tensor):
            raise TypeError(f"Sharded takes a tensor, not {type(local).__name__}")
        self.local = local
        self.region = shard_region(local, shape=shape, offset=offset)
        self.shape = tuple(int(size) for size in shape)

    def __repr__(self) -> str:
        return f"Sharded({tuple(self.local.shape)} of {self.shape} at {self.region.offsets})"


class PerRank:
    """A value that each rank keeps for itself; loading writes this rank's back to `.value`.

    On another world size it keeps what it has. Tensors inside it are part of the value.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"PerRank({self.value!r})"
