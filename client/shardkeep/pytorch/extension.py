"""What torch adds to plain states: tensors, DTensors and `Sharded` as leaves, `PerRank` values, the process group.

The store asks for this module by name, and only in a program that has imported torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from shardkeep.errors import ConfigurationError, StateError
from shardkeep.pytorch.captured import Piece, Placed
from shardkeep.pytorch.marks import PerRank, Sharded
from shardkeep.pytorch.pieces import TensorLike, dtype_of, global_shape, is_tensor_like, local_of, pieces_of
from shardkeep.pytorch.process_groups import join_ranks, leave_ranks
from shardkeep.pytorch.tensors import (
    byte_view,
    empty_like_stored,
    fill_from,
    is_dense,
    overlaps_itself,
    torch_dtype,
    write_into,
)
from shardkeep.pytorch.value_types import register_torch_values
from shardkeep.store.extensions import Leaf, LeafAdapter, LeafDestination, LeafPiece, LeafTarget
from shardkeep.store.world import World

_UNNAMED = "a tensor"

register_torch_values()


class TorchLeaves:
    """Tensors, DTensors, marked and `Sharded` ones as leaves of a plain state."""

    def accepts(self, value: object) -> bool:
        """Whether it is a tensor of any kind."""
        return is_tensor_like(value)

    def leaf(self, value: object) -> Leaf:
        """What to save of it: views of its live memory."""
        tensor = _tensor_like(value)
        pieces, placement = pieces_of(tensor, _UNNAMED)
        replica = (placement.position, placement.count) if isinstance(placement, Placed) else None
        parts = tuple(LeafPiece(piece.region, fill_from(piece.tensor)) for piece in pieces)
        return Leaf(dtype_of(tensor), global_shape(tensor), parts, replica)

    def target(self, value: object) -> LeafTarget:
        """Where to load it: its own memory wherever that is row-major on the CPU."""
        tensor = _tensor_like(value)
        pieces, _ = pieces_of(tensor, _UNNAMED)
        if overlaps_itself(local_of(tensor)):
            raise StateError("an expanded view, whose elements share memory, cannot be loaded in place; clone it first")
        return LeafTarget(dtype_of(tensor), global_shape(tensor), tuple(_destination(piece) for piece in pieces))

    def create(self, dtype: str, shape: tuple[int, ...]) -> tuple[object, memoryview]:
        """A new CPU tensor and its memory."""
        try:
            made = empty_like_stored(dtype, shape)
        except StateError as exc:
            raise ConfigurationError(str(exc)) from exc
        return made, byte_view(made)


def _destination(piece: Piece) -> LeafDestination:
    def assign(data: memoryview, dtype: str) -> None:
        source = torch.empty(piece.region.sizes, dtype=torch_dtype(dtype))
        byte_view(source)[:] = data
        write_into(piece.tensor, source)

    return LeafDestination(piece.region, byte_view(piece.tensor) if is_dense(piece.tensor) else None, assign)


def _tensor_like(value: object) -> TensorLike:
    if not isinstance(value, torch.Tensor | Sharded):
        raise TypeError(f"{type(value).__name__} is not a tensor")
    return value


def leaf_adapters() -> Sequence[LeafAdapter]:
    """The one adapter, for everything that is a torch tensor."""
    return (TorchLeaves(),)


def current_world() -> World | None:
    """The place of this process in the initialised process group, else None.

    Collective: every rank calls it; the launch id is handed out by one broadcast on a gloo group of its own.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return None
    ranks = join_ranks()
    leave_ranks(ranks)
    return World(ranks.rank, ranks.world_size, ranks.launch_id)


def current_rank() -> int | None:
    """The rank of this process in the initialised process group, else None."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else None


def unwrap_value(value: object) -> tuple[object, bool]:
    """The value to store for a leaf that is no tensor, and whether it is one rank's own."""
    return (value.value, True) if isinstance(value, PerRank) else (value, False)
