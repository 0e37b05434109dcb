"""How any tensor the user gives becomes a captured one: DTensor, marked, in slices, `Sharded` or plain."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor

from shardkeep.errors import StateError
from shardkeep.format.names import join_name, plain_text
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind
from shardkeep.pytorch import dtensors
from shardkeep.pytorch.captured import CapturedTensor, Piece, Placed, Placement, Plain
from shardkeep.pytorch.flat_slices import slices_of
from shardkeep.pytorch.marks import Sharded, mark_of
from shardkeep.pytorch.tensors import check_tensor, dtype_name

Parts = tuple[str, ...]
TensorLike = torch.Tensor | Sharded


def is_tensor_like(value: Any) -> bool:
    """Whether `value` is stored as a tensor: a torch tensor or a `Sharded` one."""
    return isinstance(value, torch.Tensor | Sharded)


def global_shape(tensor: TensorLike) -> tuple[int, ...]:
    """The shape of the whole tensor of which this may be a shard."""
    if isinstance(tensor, torch.Tensor) and not isinstance(tensor, DTensor):
        found = mark_of(tensor)
        if found is not None:
            return found[0]
    return tuple(tensor.shape)


def dtype_of(tensor: TensorLike) -> str:
    """The stored name of its dtype."""
    return dtype_name(tensor.local.dtype if isinstance(tensor, Sharded) else tensor.dtype)


def local_of(tensor: TensorLike) -> torch.Tensor:
    """The memory this rank holds of it."""
    if isinstance(tensor, Sharded):
        return tensor.local.detach()
    return dtensors.local_tensor(tensor) if isinstance(tensor, DTensor) else tensor.detach()


def pieces_of(tensor: TensorLike, name: str) -> tuple[tuple[Piece, ...], Placement]:
    """The boxes this rank holds as views of live memory, and who else holds them.

    MissingStorage and StateError, naming `name`, where the memory is not there or not what it seems.
    """
    local = tensor.local if isinstance(tensor, Sharded) else tensor
    sliced = slices_of(local)
    if sliced is not None:
        return sliced.pieces(), Placed()
    if isinstance(local, DTensor):
        check_tensor(dtensors.local_tensor(local), name)
        return _named(name, local), dtensors.placed(local)
    check_tensor(local, name)
    if isinstance(tensor, Sharded):
        return _box(tensor.region, local), Placed()
    found = mark_of(tensor)
    if found is not None:
        return _box(found[1], local), Placed()
    return _box(Region.whole(tuple(tensor.shape)), local), Plain()


def _named(name: str, tensor: DTensor) -> tuple[Piece, ...]:
    try:
        return dtensors.local_pieces(tensor)
    except StateError as exc:
        raise StateError(f"{name}: {exc}") from exc


def _box(region: Region, local: torch.Tensor) -> tuple[Piece, ...]:
    return () if region.is_empty else (Piece(region, local.detach()),)


def captured_tensor(parts: Parts, tensor: TensorLike, kind: SliceKind) -> CapturedTensor:
    """The tensor under its name, with views of live memory."""
    name = join_name(parts)
    pieces, placement = pieces_of(tensor, plain_text(name))
    return CapturedTensor(name, dtype_of(tensor), global_shape(tensor), kind, pieces, placement)
