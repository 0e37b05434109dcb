"""One save of one rank: what of the captured state is staged, fingerprinted or only named, and its values as records.

When to save, and what becomes of failures, is the Checkpointer's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from shardkeep.format.buffers import Buffer
from shardkeep.format.fingerprints import fingerprint
from shardkeep.format.names import join_name
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind, ValueRecord
from shardkeep.format.values import encode_value
from shardkeep.pytorch.captured import Capture, CapturedTensor, CapturedValue
from shardkeep.pytorch.layouts import Layouts
from shardkeep.pytorch.tensors import fill_from
from shardkeep.store.owners import Role
from shardkeep.store.save_writer import SaveWriter

BIG_VALUE: Final = "@value"
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


class ValueStaging:
    """Values as records; leaves above 64 KiB go into chunks.

    Such a leaf is named by the fingerprint and size of its bytes: ranks that hold the same one write the same record,
    so that it still counts as global.
    """

    def __init__(self, writer: SaveWriter) -> None:
        self._writer = writer
        self._staged: set[str] = set()

    def record(self, value: CapturedValue) -> ValueRecord:
        """The record of one value; UnsupportedValue names its path."""
        path = join_name(value.path)
        return ValueRecord(path, encode_value(value.value, path=path, extract=self._extract), value.per_rank)

    def _extract(self, _path: str, data: Buffer) -> str:
        view = memoryview(data).cast("B")
        name = join_name((BIG_VALUE, fingerprint(view).hex(), str(view.nbytes)))
        if name not in self._staged:
            self._staged.add(name)
            shape = (view.nbytes,)
            self._writer.stage(name, "uint8", shape, Region.whole(shape), SliceKind.VALUE, fill=_fill_bytes(view))
        return name


def items_of_values(capture: Capture, names: Iterable[str]) -> dict[str, list[CapturedValue]]:
    """The captured values of each of the state items `names`, by item."""
    found: dict[str, list[CapturedValue]] = {name: [] for name in names}
    for value in capture.values:
        if value.path[0] in found:
            found[value.path[0]].append(value)
    return found


def _fill_bytes(view: memoryview) -> Any:
    def fill(start: int, out: memoryview) -> None:
        out[:] = view[start : start + out.nbytes]

    return fill


def _fill_nothing(_start: int, _out: memoryview) -> None:
    """An empty region has no bytes."""
