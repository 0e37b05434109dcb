"""Flat slices: ranges of a tensor's row-major elements, as optimizers that shard keep them; stored as boxes.

A range of an N-d tensor is at most 2N-1 boxes, so whatever cuts it (world size, stage, bucket), any other layout loads
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from shardkeep.format.names import join_name
from shardkeep.format.regions import regions_of_flat_range
from shardkeep.format.segments import SliceKind
from shardkeep.pytorch.captured import CapturedTensor, Piece, Placed
from shardkeep.pytorch.tensors import dtype_name

_ATTRIBUTE = "_shardkeep_slices"
_WRITTEN = "_shardkeep_written"


@dataclass(frozen=True, slots=True, eq=False)
class FlatPart:
    """The elements from `start` on; `values` is flat live memory."""

    start: int
    values: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class FlatSlices:
    """What this rank alone holds of a tensor of the global `shape`: parts in order that do not overlap."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    parts: tuple[FlatPart, ...]

    def pieces(self) -> tuple[Piece, ...]:
        """The parts as boxes that are views of their memory; empty parts give none."""
        found = []
        for part in self.parts:
            at = 0
            for region in regions_of_flat_range(self.shape, part.start, part.start + part.values.numel()):
                found.append(Piece(region, part.values[at : at + region.volume].view(region.sizes)))
                at += region.volume
        return tuple(found)

    def captured(self, parts: tuple[str, ...], kind: SliceKind) -> CapturedTensor:
        """It under a name."""
        return CapturedTensor(join_name(parts), dtype_name(self.dtype), self.shape, kind, self.pieces(), Placed())


def keep_in_slices(tensor: torch.Tensor, slices: Callable[[], FlatSlices], written: Callable[[], None]) -> None:
    """From now on the tensor's content is what `slices` gives, and its own memory may be freed.

    `written` is called when it was written there, after the tensor's version was counted on.
    """
    setattr(tensor, _ATTRIBUTE, slices)
    setattr(tensor, _WRITTEN, written)


def keep_whole(tensor: torch.Tensor) -> None:
    """The tensor's own memory is its content again."""
    if is_in_slices(tensor):
        delattr(tensor, _ATTRIBUTE)
        delattr(tensor, _WRITTEN)


def note_write(tensor: torch.Tensor) -> None:
    """Lets autograd, and whoever compares versions, know that the content was written past them."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)
    if is_in_slices(tensor):
        getattr(tensor, _WRITTEN)()


def slices_of(tensor: torch.Tensor) -> FlatSlices | None:
    """What `keep_in_slices` gave, asked now; None for any other tensor."""
    found: Callable[[], FlatSlices] | None = getattr(tensor, _ATTRIBUTE, None)
    return None if found is None else found()


def is_in_slices(tensor: torch.Tensor) -> bool:
    """Whether its content is kept in slices."""
    return hasattr(tensor, _ATTRIBUTE)
