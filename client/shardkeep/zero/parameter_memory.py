"""The memory of the parameters of one bucket at stages 1 and 2: whole on every rank, in one flat tensor.

The parameters stay the objects they are and become views of it, so a gather after the step writes straight into them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import nn

from shardkeep.errors import StateError
from shardkeep.zero.collectives import Collectives, Gathering
from shardkeep.zero.disk_part import DiskPart
from shardkeep.zero.layout import Bucket, Layout


class ParameterMemory(Protocol):
    """Where the parameters of one bucket are, whatever the stage."""

    @property
    def own(self) -> torch.Tensor | None:
        """The part of this rank as flat memory of the parameters' dtype; None if it is on disk."""
        ...

    @property
    def on_disk(self) -> DiskPart | None:
        """The part of this rank, if it is on disk."""
        ...

    def read_own(self, begin: int, out: torch.Tensor) -> None:
        """Copies elements of the bucket that this rank owns, from `begin` on, into `out` of any float dtype."""
        ...

    def write_own(self, begin: int, values: torch.Tensor) -> None:
        """Replaces elements that this rank owns, from `begin` on; nothing is done where `values` is that memory."""
        ...

    def start_publish(self) -> Gathering:
        """After all of this rank's part was written: makes every rank see every part where it keeps them."""
        ...

    def replaced(self) -> int | None:
        """The place in the bucket of a parameter that was moved, cast or given other memory from outside."""
        ...


class WholeMemory:
    """All parameters of a bucket, on every rank."""

    def __init__(self, bucket: Bucket, parameters: Sequence[nn.Parameter], collectives: Collectives) -> None:
        """`parameters`: those of the bucket, in its order. Their content becomes rank 0's."""
        self._bounds = bucket.bounds
        self._offsets = bucket.offsets
        self._parameters = parameters
        self._collectives = collectives
        first = parameters[0]
        self._flat = torch.zeros(bucket.size, dtype=first.dtype, device=first.device)
        for parameter, offset, size in zip(parameters, bucket.offsets, bucket.sizes, strict=True):
            view = self._flat[offset : offset + size].view(parameter.shape)
            view.copy_(parameter.detach())
            parameter.data = view
        collectives.broadcast(self._flat)
        self._begin, end = bucket.part(collectives.rank)
        self._own = self._flat[self._begin : end]

    @property
    def own(self) -> torch.Tensor:
        """The part of this rank."""
        return self._own

    @property
    def on_disk(self) -> None:
        """Never: they are whole on every rank."""
        return

    def read_own(self, begin: int, out: torch.Tensor) -> None:
        """Copies a part of it out."""
        out.copy_(self._at(begin, out.numel()))

    def write_own(self, begin: int, values: torch.Tensor) -> None:
        """Replaces a part of it."""
        target = self._at(begin, values.numel())
        if target.data_ptr() != values.data_ptr():
            target.copy_(values)

    def start_publish(self) -> Gathering:
        """Gathers every rank's part."""
        return self._collectives.start_gather(self._flat, self._bounds)

    def replaced(self) -> int | None:
        """The place of a parameter that is no view of this memory any more."""
        return replaced_in(self._flat, self._parameters, self._offsets)

    def _at(self, begin: int, count: int) -> torch.Tensor:
        return self._own[begin - self._begin : begin - self._begin + count]


def replaced_in(flat: torch.Tensor, parameters: Sequence[nn.Parameter], offsets: Sequence[int]) -> int | None:
    """The place of the first parameter that does not lie in `flat` at its offset, or is of another dtype."""
    start, item = flat.data_ptr(), flat.itemsize
    for place, (parameter, offset) in enumerate(zip(parameters, offsets, strict=True)):
        is_there = not parameter.numel() or parameter.data_ptr() == start + offset * item
        if not is_there or parameter.dtype != flat.dtype or parameter.device != flat.device:
            return place
    return None


def check_in_place(layout: Layout, memories: Sequence[ParameterMemory]) -> None:
    """StateError for parameters that were moved or cast: trained on, while what is stepped is something else."""
    for bucket, memory in zip(layout.buckets, memories, strict=True):
        place = memory.replaced()
        if place is not None:
            name = layout.specs[bucket.parameters[place]].name
            raise StateError(
                f"{name} has other memory than ShardedOptimizer gave it: move and cast the model (to(), half(), "
                "assigning .data) before the optimizer is built"
            )
