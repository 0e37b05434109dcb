"""A rank's part of some parameters, flat: in memory, or in a scratch file from which it is read when it is used."""

from __future__ import annotations

from collections.abc import Callable

import torch

from shardkeep.pytorch.tensors import byte_view
from shardkeep.zero.scratch_file import ScratchFile, Span


class MemoryPart:
    """A part in memory."""

    def __init__(self, values: torch.Tensor) -> None:
        self.memory = values

    @classmethod
    def of(cls, values: torch.Tensor) -> MemoryPart:
        """A copy."""
        return cls(values.clone())

    def read(self, start: int, out: torch.Tensor) -> None:
        """Copies elements out."""
        out.copy_(self.memory[start : start + out.numel()])

    def step_to(self, start: int, values: torch.Tensor) -> None:
        """Takes stepped masters; nothing is done where `values` is the memory itself."""
        target = self.memory[start : start + values.numel()]
        if target.data_ptr() != values.data_ptr():
            target.copy_(values)

    def take(self, values: torch.Tensor) -> None:
        """Becomes `values`; what is the same already is not written."""
        if not torch.equal(values.view(torch.uint8), self.memory.view(torch.uint8)):
            self.memory.copy_(values)

    def live(self, start: int, stop: int) -> torch.Tensor:
        """Elements as memory."""
        return self.memory[start:stop]

    def settle(self) -> None:
        """Nothing moves."""


class DiskPart:
    """A part in a scratch file."""

    memory = None

    def __init__(
        self, file: ScratchFile, count: int, dtype: torch.dtype, *, settle: Callable[[], None] = lambda: None
    ) -> None:
        """`settle` returns when all that was given to be written is."""
        self.span = file.allocate(count * dtype.itemsize)
        self.is_master = False
        """Whether tiles are stepped right here."""
        self.settle = settle
        self.dtype = dtype
        self._file = file

    def read(self, start: int, out: torch.Tensor) -> None:
        """Reads elements, straight into `out` if it can take them as they are."""
        as_it_is = out.dtype == self.dtype and out.device.type == "cpu" and out.is_contiguous()
        target = out if as_it_is else torch.empty(out.numel(), dtype=self.dtype)
        self._file.read(self._elements(start, out.numel()).offset, byte_view(target))
        if target is not out:
            out.copy_(target)

    def write(self, start: int, values: torch.Tensor) -> None:
        """Writes elements."""
        span = self._elements(start, values.numel())
        self._file.write(span.offset, byte_view(values.detach().to("cpu", self.dtype).contiguous()))

    def step_to(self, start: int, values: torch.Tensor) -> None:
        """Takes stepped masters, unless the tile that has them is written here anyway."""
        if not self.is_master:
            self.write(start, values)

    def take(self, values: torch.Tensor) -> None:
        """Becomes `values`; what is the same already is not written."""
        known = torch.empty_like(values)
        self.read(0, known)
        if not torch.equal(values.view(torch.uint8), known.view(torch.uint8)):
            self.write(0, values)

    def live(self, start: int, stop: int) -> torch.Tensor:
        """Elements as mapped memory."""
        return self._file.mapped(self._elements(start, stop - start)).view(self.dtype)

    def _elements(self, start: int, count: int) -> Span:
        return self.span.part(start * self.dtype.itemsize, count * self.dtype.itemsize)
