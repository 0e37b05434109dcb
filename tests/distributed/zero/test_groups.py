"""Groups of ranks, groups of parameters, and who is trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from shardkeep.errors import ConfigurationError
from shardkeep.zero import ShardedOptimizer
from tests.distributed.launcher import RankPools
from tests.distributed.zero.oracle import (
    STAGES,
    Plan,
    Stage,
    Tiny,
    unsharded,
    whole_parameters,
)
from tests.distributed.zero.small_steps import RATE, assert_equal, backward, over


def train_in_a_subgroup(rank: int, world_size: int) -> None:
    """Ranks 1 and 3 of 4: their numbers in the group are others than in the world."""
    group = dist.new_group([1, 3])
    if rank not in (1, 3):
        return
    wanted = unsharded(Tiny, torch.optim.AdamW, RATE, Plan(max_norms=(None, 0.3)), 2)
    for stage in STAGES:
        for layout in ("flat", "whole"):
            model = Tiny()
            if rank == 3:
                with torch.no_grad():
                    model.first.weight.fill_(9.0)  # the group's first rank decides
            optimizer = over(model, stage, torch.optim.AdamW, group=group, layout=layout)
            for step, max_norm in enumerate((None, 0.3)):
                optimizer.zero_grad()
                backward(model, [1, 3].index(rank), step=step)
                if max_norm is not None:
                    optimizer.clip_grad_norm_(max_norm)
                optimizer.step()
            assert_equal(whole_parameters(model, optimizer), wanted.parameters, (stage, layout))


def test_fault_36_ranks_are_those_of_the_group(rank_pools: RankPools) -> None:
    rank_pools.of(4).run(train_in_a_subgroup)


def differ(rank: int, world_size: int, *, how: str) -> None:
    sizes = {"shapes": (7, 3 + (rank == 1)), "options": (7, 3)}.get(how, (7, 3))
    model = nn.Sequential(nn.Linear(*sizes), nn.Linear(3, 2) if how != "count" or rank == 1 else nn.Tanh())
    if how == "frozen" and rank == 1:
        model[0].bias.requires_grad_(False)
    if how == "dtypes" and rank == 1:
        model.double()
    params = list(model.parameters())
    if how == "order" and rank == 1:
        params.reverse()
    bucket_mb = 2 if how == "options" and rank == 1 else 1
    for stage in STAGES:
        with pytest.raises(ConfigurationError, match="differ on ranks 1 from rank 0"):
            ShardedOptimizer(model, torch.optim.SGD, params=params, stage=stage, bucket_mb=bucket_mb, **RATE)


@pytest.mark.parametrize("how", ["shapes", "count", "frozen", "dtypes", "order", "options"])
def test_ranks_that_build_something_else_are_told_on_every_rank(rank_pools: RankPools, how: str) -> None:
    rank_pools.of(3).run(differ, how=how)


def freeze_and_unfreeze(rank: int, world_size: int) -> None:
    """Bias and scale are frozen at first and trained from step 2 on; the last layer the other way round."""

    def turn(model: Tiny, step: int) -> None:
        for one in (model.first.bias, model.scale):
            one.requires_grad_(step >= 2)
        for one in model.last.parameters():
            one.requires_grad_(step < 2)

    alone = Tiny()
    masters = {name: one.detach().clone() for name, one in alone.named_parameters()}
    reference = torch.optim.AdamW([nn.Parameter(one) for one in masters.values()], **RATE)
    leaves = dict(zip(masters, reference.param_groups[0]["params"], strict=True))
    models: list[tuple[Stage, Tiny, Any]] = []
    for stage in STAGES:
        model = Tiny()
        turn(model, 0)
        models.append((stage, model, over(model, stage, torch.optim.AdamW)))
    for step in range(4):
        turn(alone, step)
        total: dict[str, torch.Tensor] = {}
        for each in range(world_size):
            alone.zero_grad()
            backward(alone, each, step=step)
            for name, one in alone.named_parameters():
                if one.grad is not None:
                    total[name] = one.grad.clone() if name not in total else total[name].add_(one.grad)
        for name, leaf in leaves.items():
            leaf.grad = total[name] / world_size if name in total else None
        reference.step()
        alone.load_state_dict({name: leaf.detach() for name, leaf in leaves.items()})
        for stage, model, optimizer in models:
            turn(model, step)
            optimizer.zero_grad()
            backward(model, rank, step=step)
            optimizer.step()
            wanted = {name: one.detach() for name, one in alone.named_parameters()}
            assert_equal(whole_parameters(model, optimizer), wanted, (stage, step))


def test_parameters_are_frozen_and_trained_as_they_are_now(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(freeze_and_unfreeze)


def add_a_group_later(rank: int, world_size: int) -> None:
    def build(masters: list[Any]) -> torch.optim.Optimizer:
        groups: list[dict[str, Any]] = [{"params": masters[:3]}, {"params": masters[3:], "lr": 0.01}]
        return torch.optim.AdamW(groups, lr=0.1)

    wanted = unsharded(Tiny, build, {}, Plan(max_norms=(None, None)), world_size)
    for stage in STAGES:
        model = Tiny()
        members = list(model.parameters())
        optimizer = over(model, stage, torch.optim.AdamW, params=members[:3])
        optimizer.add_param_group({"params": members[3:], "lr": 0.01})
        for step in range(2):
            optimizer.zero_grad()
            backward(model, rank, step=step)
            optimizer.step()
        assert_equal(whole_parameters(model, optimizer), wanted.parameters, stage)
        assert [len(group["params"]) for group in optimizer.param_groups] == [3, 2]


def test_groups_may_be_added_later(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(add_a_group_later)
