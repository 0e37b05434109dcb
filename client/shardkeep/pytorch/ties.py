"""Tied tensors: one memory under several names, stored once under the first of them.

The answer must be the same on all ranks, so memory of zero bytes (an empty shard), DTensors and tensors kept in slices
are tied by identity only, never by address.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch.distributed.tensor import DTensor

from shardkeep.pytorch.flat_slices import is_in_slices


class Ties:
    """The tensors seen so far. Holds them, so that no address is reused while it lives."""

    def __init__(self) -> None:
        self._first_names: dict[Hashable, str] = {}
        self._held: list[torch.Tensor] = []

    def first_name(self, tensor: torch.Tensor, name: str) -> str:
        """The name under which this tensor was first registered: `name` itself if it is new."""
        keys = _keys(tensor)
        for key in keys:
            if key in self._first_names:
                return self._first_names[key]
        self._held.append(tensor)
        self._first_names.update(dict.fromkeys(keys, name))
        return name


def _keys(tensor: torch.Tensor) -> list[Hashable]:
    keys: list[Hashable] = [id(tensor)]
    if isinstance(tensor, DTensor) or tensor.numel() == 0 or is_in_slices(tensor):
        return keys
    storage = tensor.untyped_storage()
    if storage.nbytes() > 0:
        where = (str(tensor.device), storage.data_ptr(), tensor.storage_offset())
        keys.append((*where, tensor.dtype, tuple(tensor.shape), tensor.stride()))
    return keys
