"""Where a state tensor lies: like the shard of its parameter, or whole.

A plain tensor on a DTensor or marked parameter is a shard only under a key whose tensors have the local shape of their
parameter for every parameter of the optimizer. One tensor alone does not tell: a scale of 3 numbers beside a shard of 3
elements on one rank and of 2 on the next would be cut on one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from shardkeep.format.segments import SliceKind
from shardkeep.pytorch import dtensors
from shardkeep.pytorch.captured import CapturedTensor, Piece, Placed, Placement
from shardkeep.pytorch.marks import mark_of
from shardkeep.pytorch.pieces import captured_tensor, global_shape, local_of, pieces_of
from shardkeep.pytorch.tensors import check_tensor, dtype_name


def has_shards(parameter: torch.Tensor) -> bool:
    """Whether the parameter is a DTensor or marked, so that plain state can be a shard like it."""
    return isinstance(parameter, DTensor) or mark_of(parameter) is not None


def is_cut(parameter: torch.Tensor) -> bool:
    """Whether ranks hold different parts of the parameter, so that state of another shape is one rank's own."""
    return dtensors.is_sharded(parameter) if isinstance(parameter, DTensor) else mark_of(parameter) is not None


def is_plain_array(value: Any) -> bool:
    """Whether it is a tensor that could be a shard: no DTensor, no scalar."""
    return isinstance(value, torch.Tensor) and not isinstance(value, DTensor) and value.ndim > 0


def shard_keys(states: Iterable[tuple[torch.Tensor, Mapping[str, Any]]]) -> frozenset[str]:
    """The state keys under which every plain tensor has the local shape of its parameter."""
    fitting: set[str] = set()
    other: set[str] = set()
    for parameter, state in states:
        if not has_shards(parameter):
            continue
        local_shape = tuple(local_of(parameter).shape)
        for key, value in state.items():
            if is_plain_array(value):
                (fitting if tuple(value.shape) == local_shape else other).add(key)
    return frozenset(fitting - other)


def state_pieces(
    parameter: torch.Tensor, value: torch.Tensor, name: str, *, as_shard: bool
) -> tuple[tuple[Piece, ...], Placement]:
    """Where its parts lie in the whole, and who else holds them. `as_shard`: it is laid out like the parameter."""
    if not as_shard or isinstance(value, DTensor):
        return pieces_of(value, name)
    check_tensor(value, name)
    if isinstance(parameter, DTensor):
        return dtensors.local_pieces_like(parameter, value.detach()), dtensors.placed(parameter)
    marked = mark_of(parameter)
    if marked is None:
        return pieces_of(value, name)
    return ((Piece(marked[1], value.detach()),) if value.numel() else ()), Placed()


def captured_state(
    parts: tuple[str, ...], parameter: torch.Tensor, value: torch.Tensor, *, as_shard: bool
) -> CapturedTensor:
    """The state tensor under its name."""
    found = captured_tensor(parts, value, SliceKind.OPTIMIZER)
    if not as_shard or isinstance(value, DTensor):
        return found
    pieces, placement = state_pieces(parameter, value, found.name, as_shard=True)
    return CapturedTensor(
        found.name, dtype_name(value.dtype), global_shape(parameter), SliceKind.OPTIMIZER, pieces, placement
    )
