"""AdamW whose moments are memory-mapped files: the plain way to have more state than memory."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = os.sysconf("SC_PAGESIZE")
_MADV_DONTNEED = 4
_SYNC_FILE_RANGE_WAIT_WRITE_WAIT = 7


@dataclass(frozen=True, slots=True)
class _MappedTensor:
    path: Path
    tensor: Tensor

    def give_back(self) -> None:
        """Written to the disk (not flushed) and out of memory, the page cache too."""
        size = -(-self.tensor.nbytes // _PAGE) * _PAGE
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            address, length = ctypes.c_void_p(self.tensor.data_ptr()), ctypes.c_size_t(size)
            _checked(_LIBC.madvise(address, length, _MADV_DONTNEED))
            nothing = ctypes.c_int64(0)
            _checked(_LIBC.sync_file_range(descriptor, nothing, nothing, _SYNC_FILE_RANGE_WAIT_WRITE_WAIT))
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


class MappedAdamW(torch.optim.AdamW):
    """`gives_back`: after each step its moments leave memory, as a budget demands; else the kernel decides."""

    _numbers = itertools.count()

    def __init__(self, params: Any, *, folder: Path, gives_back: bool, **options: Any) -> None:
        super().__init__(params, **options)
        self._folder = folder
        self._gives_back = gives_back
        self._mapped: list[_MappedTensor] = []

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter not in self.state:
                    moments = {key: self._map(parameter) for key in ("exp_avg", "exp_avg_sq")}
                    self.state[parameter] = {"step": torch.tensor(0.0), **moments}
        loss = super().step(closure)
        if self._gives_back:
            for mapped in self._mapped:
                mapped.give_back()
        return loss

    def _map(self, like: Tensor) -> Tensor:
        path = self._folder / str(next(self._numbers))
        tensor = torch.from_file(str(path), shared=True, size=like.numel(), dtype=like.dtype).view(like.shape)
        self._mapped.append(_MappedTensor(path, tensor))
        return tensor


def _checked(code: int) -> None:
    if code != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
