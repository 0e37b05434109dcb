"""The memory of the parameters of one bucket at stage 3.

While it is gathered its parameters are views of one flat memory, which goes when the last view of it does. A freed
parameter is NaN everywhere, expanded from one element: reading it is seen, writing it raises, and neither touches freed
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from shardkeep.errors import ConfigurationError, StateError
from shardkeep.pytorch.flat_slices import FlatPart, FlatSlices, keep_in_slices, keep_whole
from shardkeep.zero.autograd_internals import version_of
from shardkeep.zero.collectives import Collectives, Gathering
from shardkeep.zero.disk_part import DiskPart, MemoryPart
from shardkeep.zero.layout import Bucket
from shardkeep.zero.parameter_memory import replaced_in

KeepPart = Callable[[torch.Tensor], MemoryPart | DiskPart]


class UnitMemory:
    """One bucket of one unit: this rank's part always, the whole while it is gathered."""

    def __init__(
        self, bucket: Bucket, parameters: Sequence[nn.Parameter], collectives: Collectives, keep: KeepPart
    ) -> None:
        """`parameters`: those of the bucket, in its order. Their content becomes rank 0's; then they are freed."""
        self._bucket = bucket
        self._parameters = parameters
        self._collectives = collectives
        self.dtype = parameters[0].dtype
        self.generation = 0
        self._device = parameters[0].device
        self._shapes = [tuple(parameter.shape) for parameter in parameters]
        self._nan = torch.full((), torch.nan, dtype=self.dtype, device=self._device)
        self._begin, self._end = bucket.part(collectives.rank)
        flat = torch.zeros(bucket.size, dtype=self.dtype, device=self._device)
        for parameter, view in zip(parameters, self._views(flat), strict=True):
            view.copy_(parameter.detach())
        collectives.broadcast(flat)
        self._own = keep(flat[self._begin : self._end])
        self._flat: torch.Tensor | None = None
        self._gathering: Gathering | None = None
        self._versions = [0] * len(parameters)
        self.is_whole = False
        for place, parameter in enumerate(parameters):
            keep_in_slices(parameter, partial(self._slices, place), partial(self._note_version, place))
            _copies_when_whole(parameter, self)
        self.free()

    @property
    def own(self) -> torch.Tensor | None:
        """The part of this rank, if it is in memory."""
        return self._own.memory

    @property
    def on_disk(self) -> DiskPart | None:
        """The part of this rank, if it is not."""
        return self._own if isinstance(self._own, DiskPart) else None

    @property
    def flat(self) -> torch.Tensor | None:
        """The whole, or what is being gathered of it; None while it is freed."""
        return self._flat

    def read_own(self, begin: int, out: torch.Tensor) -> None:
        """Copies a part of it out."""
        self._own.read(begin - self._begin, out)

    def write_own(self, begin: int, values: torch.Tensor) -> None:
        """Replaces a part of it."""
        self._own.step_to(begin - self._begin, values)

    def _slices(self, place: int) -> FlatSlices:
        """What this rank has of one parameter."""
        bucket = self._bucket
        offset, size = bucket.offsets[place], bucket.sizes[place]
        first, last = max(self._begin, offset), min(self._end, offset + size)
        parts = (
            [FlatPart(first - offset, self._own.live(first - self._begin, last - self._begin))] if first < last else []
        )
        return FlatSlices(self._shapes[place], self.dtype, tuple(parts))

    def _note_version(self, place: int) -> None:
        """A write to the part of this rank is no write to the freed parameter."""
        self._versions[place] = version_of(self._parameters[place])

    def start_publish(self) -> Gathering:
        """Whoever has the parameters gathered gets the new ones; else they are gathered when they are used."""
        self.generation += 1
        if not self.is_whole or self._flat is None:
            self.free()  # what was sent for ahead is old
            return Gathering()
        self._own.settle()
        self._own.read(0, self._flat[self._begin : self._end])
        return self._collectives.start_gather(self._flat, self._bucket.bounds)

    @torch.no_grad()
    def start_gather(self) -> None:
        """Sends for the others' parts. Idempotent."""
        if self._flat is not None:
            return
        with torch.inference_mode(mode=False), torch.no_grad():
            self._flat = torch.empty(self._bucket.size, dtype=self.dtype, device=self._device)
            self._own.read(0, self._flat[self._begin : self._end])
            self._gathering = self._collectives.start_gather(self._flat, self._bucket.bounds)

    def wait(self) -> None:
        """Returns when the parameters are whole. Idempotent."""
        if self.is_whole:
            return
        self.start_gather()
        assert self._flat is not None
        self._land()
        self._check_not_written()
        with torch.inference_mode(mode=False), torch.no_grad():
            for parameter, view in zip(self._parameters, self._views(self._flat), strict=True):
                parameter.data = view
        self.is_whole = True

    def free(self) -> None:
        """Gives the whole back; the parameters read as NaN. Idempotent."""
        self._land()
        with torch.inference_mode(mode=False), torch.no_grad():
            self._nan.fill_(torch.nan)
            for place, parameter in enumerate(self._parameters):
                parameter.data = self._nan.expand(self._shapes[place])
                self._versions[place] = version_of(parameter)
        self._flat = None
        self.is_whole = False

    def view(self, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> torch.Tensor:
        """Part of the whole, while it is whole."""
        assert self._flat is not None
        return self._flat.as_strided(size, stride, offset)

    def release(self) -> None:
        """The parameters are ordinary ones from now on."""
        for parameter in self._parameters:
            keep_whole(parameter)
            del parameter.__deepcopy__

    def take_back(self) -> None:
        """Keeps the part of this rank of what was written into the whole."""
        if self.is_whole and self._flat is not None:
            self._own.take(self._flat[self._begin : self._end])
            self.generation += any(self._written())

    def replaced(self) -> int | None:
        """The place of a parameter that is neither freed nor a view of the whole any more."""
        if self.is_whole and self._flat is not None:
            return replaced_in(self._flat, self._parameters, self._bucket.offsets)
        return replaced_in(self._nan, self._parameters, [0] * len(self._parameters))

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        bucket = self._bucket
        return [
            flat[offset : offset + size].view(shape)
            for offset, size, shape in zip(bucket.offsets, bucket.sizes, self._shapes, strict=True)
        ]

    def _land(self) -> None:
        if self._gathering is not None:
            self._gathering.wait()
            self._gathering = None

    def _written(self) -> list[bool]:
        return [version_of(one) != known for one, known in zip(self._parameters, self._versions, strict=True)]

    def _check_not_written(self) -> None:
        """Filling does not raise on expanded memory, but counts as a write."""
        if any(self._written()):
            self.free()
            raise StateError(
                "a parameter was written while it is divided among the ranks, which has no effect: write it inside "
                "`with optimizer.gathered(module)`"
            )


def _copies_when_whole(parameter: nn.Parameter, memory: UnitMemory) -> None:
    """A copy of a freed parameter would be one of NaN, and stay one."""

    def copy(memo: dict[int, Any]) -> Any:
        if not memory.is_whole:
            raise ConfigurationError(
                "a parameter is divided among the ranks and cannot be copied: copy the model inside "
                "`with optimizer.gathered(model)`"
            )
        return nn.Parameter.__deepcopy__(parameter, memo)

    parameter.__deepcopy__ = copy  # type: ignore[method-assign]
