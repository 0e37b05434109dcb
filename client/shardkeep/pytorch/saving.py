"""One save of one rank: what of the captured state is staged, fingerprinted or only named.

When to save, and what becomes of failures, is the Checkpointer's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from shardkeep.format.regions import Region
from shardkeep.pytorch.captured import Capture, CapturedTensor, CapturedValue
from shardkeep.pytorch.layouts import Layouts
from shardkeep.pytorch.tensors import fill_from
from shardkeep.store.owners import Role
from shardkeep.store.save_writer import SaveWriter

LOOP_PATH: Final = ("@loop",)
"""Path of the value that holds the position of the training loop, with its units."""


@dataclass(frozen=True, slots=True)
class StagedSlice:
    """One slice to hand to the writer. No `data`: an empty region, which says that this rank knows the tensor."""

    tensor: CapturedTensor
    region: Region
    data: torch.Tensor | None = None
    witness: bool = False

    @property
    def stored_bytes(self) -> int:
        """Raw bytes this slice stores."""
        return self.data.numel() * self.data.element_size() if self.data is not None and not self.witness else 0


def plan_slices(tensors: Iterable[CapturedTensor], layouts: Layouts, save: int) -> list[StagedSlice]:
    """What this rank does with each tensor it knows, in the order of the capture."""
    planned: list[StagedSlice] = []
    for tensor in tensors:
        role = layouts.share(tensor).role(save)
        if tensor.pieces and role is not Role.RESTS:
            witness = role is Role.WITNESSES
            planned += [StagedSlice(tensor, piece.region, piece.tensor, witness) for piece in tensor.pieces]
        elif tensor.shape:
            nothing = (0,) * len(tensor.shape)
            planned.append(StagedSlice(tensor, Region(nothing, nothing)))
    return planned


def stage_slices(writer: SaveWriter, slices: Sequence[StagedSlice]) -> None:
    """Hand all slices to the writer; training may change its tensors afterwards."""
    for item in slices:
        tensor = item.tensor
        fill = fill_from(item.data) if item.data is not None else _fill_nothing
        writer.stage(tensor.name, tensor.dtype, tensor.shape, item.region, tensor.kind, witness=item.witness, fill=fill)


def items_of_values(capture: Capture, names: Iterable[str]) -> dict[str, list[CapturedValue]]:
    """The captured values of each of the state items `names`, by item."""
    found: dict[str, list[CapturedValue]] = {name: [] for name in names}
    for value in capture.values:
        if value.path[0] in found:
            found[value.path[0]].append(value)
    return found


def _fill_nothing(_start: int, _out: memoryview) -> None:
    """An empty region has no bytes."""
