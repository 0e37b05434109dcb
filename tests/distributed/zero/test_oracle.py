"""The grid: at every stage, accumulation, offload, clipping, dtype and world, training is the oracle's, bit for bit."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, Literal

import pytest
import torch

from shardkeep.zero import ShardedOptimizer
from tests.distributed.launcher import RankPools
from tests.distributed.zero.oracle import (
    STAGES,
    Plan,
    Tiny,
    differences,
    sharded,
    tiny_batch,
    unsharded,
    whole_gradients,
)

OFFLOADS: tuple[Literal["cpu"] | None, ...] = (None, "cpu")
OPTIONS: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.1}


def train_grid(rank: int, world_size: int, *, plans: list[Plan], dtypes: list[torch.dtype]) -> list[str]:
    """The combinations that are not the oracle's, with what differs."""
    wrong = []
    for dtype, plan in itertools.product(dtypes, plans):
        make_model = partial(Tiny, dtype)
        wanted = unsharded(make_model, torch.optim.AdamW, OPTIONS, plan, world_size)
        for stage, offload in itertools.product(STAGES, OFFLOADS):
            model = make_model()
            optimizer = ShardedOptimizer(
                model,
                torch.optim.AdamW,
                stage=stage,
                offload=offload,
                bucket_mb=0.0004,
                persistent_elements=20,
                **OPTIONS,
            )
            found = differences(sharded(model, optimizer, plan, rank), wanted)
            if found:
                wrong.append(f"stage {stage}, offload {offload}, {dtype}, {plan}: {'; '.join(found)}")
    return wrong


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_fault_15_every_stage_trains_as_the_unsharded_optimizer_bit_for_bit(
    rank_pools: RankPools, world_size: int
) -> None:
    plans = [
        Plan(micro_batches=micro_batches, defers=defers, backwards=backwards)
        for micro_batches, defers in [(1, False), (2, False), (3, False), (2, True), (3, True)]
        for backwards in (1, 2)
    ]
    dtypes = [torch.float32, torch.bfloat16]

    wrong = rank_pools.of(world_size).run(train_grid, plans=plans, dtypes=dtypes)

    assert not [each for of_rank in wrong for each in of_rank]


def full_batch_gradients(rank: int, world_size: int) -> list[str]:
    """Gradients of every stage that are not those of one process that has all ranks' samples in one batch."""
    whole = Tiny()
    batch = torch.cat([tiny_batch(0, 0, each) for each in range(world_size)])
    whole(batch).square().mean().backward()
    wrong = []
    for stage in STAGES:
        model = Tiny()
        optimizer = ShardedOptimizer(model, torch.optim.SGD, stage=stage, bucket_mb=0.0004, persistent_elements=20)
        model(tiny_batch(0, 0, rank)).square().mean().backward()
        found = whole_gradients(optimizer)
        for name, parameter in whole.named_parameters():
            assert parameter.grad is not None
            error = (found[name] - parameter.grad).norm() / parameter.grad.norm()
            if not error < 1e-5:
                wrong.append(f"stage {stage}: {name} is off by {float(error):.3g}")
    return wrong


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_gradients_are_those_of_the_full_batch(rank_pools: RankPools, world_size: int) -> None:
    wrong = rank_pools.of(world_size).run(full_batch_gradients)

    assert not [each for of_rank in wrong for each in of_rank]
