from __future__ import annotations

import itertools

import pytest
import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement, _StridedShard

from shardkeep.errors import StateError
from shardkeep.pytorch.dtensors import Run, index_runs


def indices(runs: tuple[Run, ...]) -> list[int]:
    return [index for run in runs for index in range(run.start, run.stop)]


def torch_shards(
    size: int, mesh_shape: tuple[int, ...], placements: tuple[Placement, ...]
) -> dict[tuple[int, ...], list[int]]:
    """What torch's own splitting gives each coordinate, left to right."""
    shards: dict[tuple[int, ...], torch.Tensor] = {(): torch.arange(size)}
    for chunks, placement in zip(mesh_shape, placements, strict=True):
        split: dict[tuple[int, ...], torch.Tensor] = {}
        for coordinate, shard in shards.items():
            parts = [shard] * chunks
            if isinstance(placement, Shard | _StridedShard):
                parts, _ = placement._split_tensor(shard, chunks, with_padding=False)
            split.update({(*coordinate, chosen): part for chosen, part in enumerate(parts)})
        shards = split
    return {coordinate: shard.tolist() for coordinate, shard in shards.items()}


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9, 16, 1003])
@pytest.mark.parametrize(
    "placements",
    [
        (Shard(0), Replicate()),
        (Shard(0), Shard(0)),
        (_StridedShard(0, split_factor=2), Shard(0)),
        (_StridedShard(0, split_factor=3), Shard(0)),
        (_StridedShard(0, split_factor=4), Replicate()),
        (Replicate(), Shard(0)),
    ],
    ids=str,
)
@pytest.mark.parametrize("mesh_shape", [(2, 2), (3, 2), (4, 3)], ids=str)
def test_E94_index_maps_are_those_of_torchs_own_splitting(
    size: int, placements: tuple[Placement, ...], mesh_shape: tuple[int, ...]
) -> None:
    for coordinate, expected in torch_shards(size, mesh_shape, placements).items():
        (runs,) = index_runs((size,), mesh_shape, coordinate, placements)
        assert indices(runs) == expected


def test_runs_that_touch_are_one() -> None:
    (runs,) = index_runs((8,), (1, 2), (0, 0), (_StridedShard(0, split_factor=2), Replicate()))
    assert runs == (Run(0, 8),)


def test_shards_of_two_dimensions_cover_the_tensor_once() -> None:
    seen = torch.zeros(5, 7, dtype=torch.int64)
    for coordinate in itertools.product(range(2), range(3)):
        rows, columns = index_runs((5, 7), (2, 3), coordinate, (Shard(1), Shard(0)))
        for row, column in itertools.product(indices(rows), indices(columns)):
            seen[row, column] += 1
    assert bool((seen == 1).all())


def test_negative_dimensions_count_from_the_end() -> None:
    assert index_runs((4, 6), (2,), (1,), (Shard(-1),)) == [(Run(0, 4),), (Run(3, 6),)]


def test_a_partial_placement_is_an_error() -> None:
    with pytest.raises(StateError, match="Partial"):
        index_runs((4,), (2,), (0,), (Partial(),))
