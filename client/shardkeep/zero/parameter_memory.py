"""The memory of the parameters of one bucket at stages 1 and 2: whole on every rank, in one flat tensor.

The parameters stay the objects they are and become views of it, so a gather after the step writes straight into them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import nn

from shardkeep.zero.collectives import Collectives, Gathering
from shardkeep.zero.layout import Bucket


class ParameterMemory(Protocol):
    """Where the parameters of one bucket are, whatever the stage."""

    @property
    def own(self) -> torch.Tensor | None:
        """The part of this rank as flat memory of the parameters' dtype; None if it is on disk."""
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


class WholeMemory:
    """All parameters of a bucket, on every rank."""

    def __init__(self, bucket: Bucket, parameters: Sequence[nn.Parameter], collectives: Collectives) -> None:
        """`parameters`: those of the bucket, in its order. Their content becomes rank 0's."""
        self._bounds = bucket.bounds
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

    def _at(self, begin: int, count: int) -> torch.Tensor:
        return self._own[begin - self._begin : begin - self._begin + count]
