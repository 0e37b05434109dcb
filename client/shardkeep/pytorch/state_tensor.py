"""One stored state tensor and the live one it becomes: the one that is there if it fits, else a new one."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor

from shardkeep.format.names import plain_text, split_name
from shardkeep.pytorch import dtensors
from shardkeep.pytorch.captured import Piece
from shardkeep.pytorch.pieces import dtype_of, global_shape, local_of
from shardkeep.pytorch.state_layout import is_plain_array, state_pieces
from shardkeep.pytorch.stored import StoredTensor
from shardkeep.pytorch.tensors import empty_in_layout_of, empty_like_stored, overlaps_itself


class StateTensor:
    """One state tensor: the live one if it is what was saved, else a new one."""

    def __init__(
        self,
        stored: StoredTensor,
        parameter: torch.Tensor,
        live: Any,
        group: dict[str, Any],
        *,
        is_local: bool,
        dtype: str | None = None,
    ) -> None:
        """`dtype`: what it becomes; None: what it was saved as."""
        self.stored = stored
        self._dtype = dtype or stored.dtype
        self._parameter = parameter
        self._live = live
        self._group = group
        self._is_local = is_local
        self._as_shard = lies_like(stored, parameter)
        self._tensor: torch.Tensor | None = None

    def place(self) -> tuple[Piece, ...]:
        """The pieces to read into."""
        self._tensor = self._live if self._is_usable() else self._make()
        return state_pieces(self._parameter, self._tensor, plain_text(self.stored.name), as_shard=self._as_shard)[0]

    def built(self) -> torch.Tensor:
        """The tensor, after `place`."""
        assert self._tensor is not None  # reads run before actions
        return self._tensor

    def _is_usable(self) -> bool:
        live = self._live
        if not isinstance(live, torch.Tensor) or dtype_of(live) != self._dtype or overlaps_itself(local_of(live)):
            return False
        if self._as_shard and is_plain_array(live):
            return tuple(live.shape) == tuple(local_of(self._parameter).shape)
        return global_shape(live) == tuple(self.stored.shape)

    def _make(self) -> torch.Tensor:
        parameter, stored = self._parameter, self.stored
        if not self._as_shard:
            blank = empty_like_stored(self._dtype, stored.shape)
            return blank.to(self._live_device() or state_device(blank, parameter, self._group))
        made = empty_in_layout_of(local_of(parameter), self._dtype)
        return dtensors.like(parameter, made) if isinstance(parameter, DTensor) and not self._is_local else made

    def _live_device(self) -> torch.device | None:
        return local_of(self._live).device if isinstance(self._live, torch.Tensor) else None


def lies_like(stored: StoredTensor, parameter: torch.Tensor) -> bool:
    """Whether a stored state tensor lies where its parameter lies. A step counter is 0-d, even if the parameter is."""
    return tuple(stored.shape) == global_shape(parameter) and split_name(stored.name)[-1] != "step"


def state_device(value: torch.Tensor, parameter: torch.Tensor, group: dict[str, Any]) -> torch.device:
    """torch.optim's rule: counters stay on the CPU unless the step runs on the device as a whole."""
    on_device = group.get("capturable") or group.get("fused")
    if value.ndim == 0 and not on_device:
        return torch.device("cpu")
    return local_of(parameter).device
