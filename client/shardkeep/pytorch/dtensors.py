"""DTensors: which boxes of the global tensor this rank holds, and which replica of them it is.

The boxes come from an index map of each dimension, built from mesh and placements alone, so every rank could compute
those of any other. Uneven, empty and strided shards (FSDP2 over TP) included.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor, Partial
from torch.distributed.tensor.placement_types import Placement as TorchPlacement
from torch.distributed.tensor.placement_types import Shard, _StridedShard

from shardkeep.errors import StateError
from shardkeep.format.regions import Region
from shardkeep.pytorch.captured import Piece, Placed
from shardkeep.pytorch.tensors import box_of


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive global indices of one dimension, in local order."""

    start: int
    stop: int


Runs = tuple[Run, ...]


def local_tensor(tensor: DTensor) -> torch.Tensor:
    """The shard this rank holds, waited for if a collective still fills it; live memory, no autograd."""
    with torch.no_grad():
        local = tensor.to_local()
    wait = getattr(local, "wait", None)
    return (wait() if callable(wait) else local).detach()


def local_pieces(tensor: DTensor) -> tuple[Piece, ...]:
    """The boxes this rank holds, each with its view of the local shard; none where the shard is empty.

    StateError for Partial placements and for a local shard whose shape the mesh and placements do not explain.
    """
    return local_pieces_like(tensor, local_tensor(tensor))


def local_pieces_like(tensor: DTensor, local: torch.Tensor) -> tuple[Piece, ...]:
    """The same for another local tensor that is laid out like `tensor`'s, such as plain optimizer state."""
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None:
        return ()
    dims = index_runs(tuple(tensor.shape), tuple(tensor.device_mesh.shape), tuple(coordinate), tensor.placements)
    expected = tuple(sum(run.stop - run.start for run in runs) for runs in dims)
    if expected != tuple(local.shape):
        raise StateError(
            f"a DTensor of shape {tuple(tensor.shape)} with placements {tensor.placements} should hold {expected} "
            f"here and holds {tuple(local.shape)}; for uneven shards give DTensor.from_local `shape` and `stride`"
        )
    return _pieces(dims, local)


def replica_position(tensor: DTensor) -> tuple[int, int]:
    """The position of this rank among the ranks that hold the same boxes, and their number."""
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate()
    position, count = 0, 1
    for dim, placement in enumerate(tensor.placements):
        if not placement.is_replicate():
            continue
        size = mesh.size(dim)
        position = position * size + (coordinate[dim] if coordinate is not None else 0)
        count *= size
    return position, count


def placed(tensor: DTensor) -> Placed:
    """`replica_position` as a placement."""
    position, count = replica_position(tensor)
    return Placed(position, count)


def is_sharded(tensor: DTensor) -> bool:
    """Whether ranks of the mesh hold different parts."""
    return any(
        tensor.device_mesh.size(dim) > 1
        for dim, placement in enumerate(tensor.placements)
        if not placement.is_replicate()
    )


def like(tensor: DTensor, local: torch.Tensor) -> DTensor:
    """A DTensor of the same mesh, placements and global shape around another local tensor."""
    return DTensor.from_local(
        local,
        tensor.device_mesh,
        tensor.placements,
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )


def index_runs(
    shape: Sequence[int],
    mesh_shape: Sequence[int],
    coordinate: Sequence[int],
    placements: Sequence[TorchPlacement],
) -> list[Runs]:
    """For each dimension, the global indices at this mesh coordinate, as runs in local order."""
    dims: list[Runs] = [(Run(0, size),) if size else () for size in shape]
    for mesh_dim, placement in enumerate(placements):
        if isinstance(placement, Partial):
            raise StateError(
                "a DTensor with a Partial placement holds summands, not values; call redistribute() on it first"
            )
        chunks, chosen = mesh_shape[mesh_dim], coordinate[mesh_dim]
        if isinstance(placement, _StridedShard):
            dim = placement.dim % len(shape)
            dims[dim] = _strided_chunk(dims[dim], int(placement.split_factor), chunks, chosen)
        elif isinstance(placement, Shard):
            dim = placement.dim % len(shape)
            dims[dim] = _chunk(dims[dim], chunks, chosen)
        elif not placement.is_replicate():
            raise StateError(f"DTensor placement {placement} is not known; redistribute() to Shard or Replicate first")
    return dims


def _chunk(runs: Runs, chunks: int, chosen: int) -> Runs:
    """torch.chunk's rule: every chunk but the last ones is ceil(length / chunks) long; the last may be empty."""
    length = sum(run.stop - run.start for run in runs)
    size = -(-length // chunks)
    return _slice(runs, min(length, chosen * size), min(length, (chosen + 1) * size))


def _strided_chunk(runs: Runs, split_factor: int, chunks: int, chosen: int) -> Runs:
    """Split in `split_factor` first, then each of those in `chunks`: the chosen one of each, joined."""
    parts = (_chunk(_chunk(runs, split_factor, part), chunks, chosen) for part in range(split_factor))
    return _merged(tuple(itertools.chain.from_iterable(parts)))


def _slice(runs: Runs, start: int, stop: int) -> Runs:
    taken = []
    position = 0
    for run in runs:
        first, last = max(start - position, 0), min(stop - position, run.stop - run.start)
        if first < last:
            taken.append(Run(run.start + first, run.start + last))
        position += run.stop - run.start
    return tuple(taken)


def _merged(runs: Runs) -> Runs:
    merged: list[Run] = []
    for run in runs:
        if merged and merged[-1].stop == run.start:
            merged[-1] = Run(merged[-1].start, run.stop)
        else:
            merged.append(run)
    return tuple(merged)


def _pieces(dims: list[Runs], local: torch.Tensor) -> tuple[Piece, ...]:
    located = [list(_with_local_start(runs)) for runs in dims]
    pieces = []
    for combination in itertools.product(*located):
        offsets = tuple(run.start for run, _ in combination)
        sizes = tuple(run.stop - run.start for run, _ in combination)
        starts = [start for _, start in combination]
        pieces.append(Piece(Region(offsets, sizes), box_of(local, starts, sizes)))
    return tuple(pieces)


def _with_local_start(runs: Runs) -> list[tuple[Run, int]]:
    starts = itertools.accumulate((run.stop - run.start for run in runs), initial=0)
    return list(zip(runs, starts, strict=False))
