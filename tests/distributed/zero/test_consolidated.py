"""`state_dict()` gathers; what it gives loads into any stage and into an optimizer that is not sharded."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch

from shardkeep.zero import ShardedOptimizer
from tests.distributed.launcher import RankPools
from tests.distributed.zero.setups import Setup, Trained, build, saved, unequal, whole

FROM = (
    Setup("zero", 4, stage=1),
    Setup("zero", 3, stage=3, offload="cpu", dtype=torch.bfloat16),
    Setup("zero", 2, stage=2, layout="whole", dtype=torch.bfloat16),
)
INTO = (Setup("zero", 3, stage=2), Setup("zero", 2, stage=3, offload="cpu"), Setup("plain"))


def sharded(trained: Trained) -> ShardedOptimizer:
    assert isinstance(trained.optimizer, ShardedOptimizer)
    return trained.optimizer


def gather_and_load(rank: int, world_size: int) -> list[str]:
    """Every source's dict into every target of its dtype and back; what is not equal."""
    wrong = []
    for source in FROM:
        trained = build(source)
        gathered: Any = None
        weights: Any = None
        if trained is not None:
            trained.train(range(2))
            gathered, weights = trained.optimizer.state_dict(), trained.model.state_dict()
            before = copy.deepcopy(gathered)
        wanted = whole(saved(trained, source.world))
        for way in INTO:
            target = replace(way, dtype=source.dtype)
            loaded = build(target, seed=5)
            if loaded is not None and trained is not None:
                groups = [id(group) for group in loaded.optimizer.param_groups]
                loaded.model.load_state_dict(weights)
                loaded.optimizer.load_state_dict(gathered)
                if target.kind == "zero" and groups != [id(group) for group in loaded.optimizer.param_groups]:
                    wrong.append(f"{source} -> {target}: the groups are others")
                if repr(before) != repr(gathered):
                    wrong.append(f"{source} -> {target}: the caller's dict was changed")
            if target.kind == "zero" and target.world <= source.world:
                found = whole(saved(loaded, target.world))
                wrong += [f"{source} -> {target}: {each}" for each in unequal(found, wanted)]
            elif target.kind == "plain" and loaded is not None:
                loaded.train(range(2, 3))
    return wrong


def gather_on_one_rank(rank: int, world_size: int) -> tuple[list[int], list[str], bool]:
    """Which parameters this rank got."""
    trained = build(Setup("zero", 4, stage=3, dtype=torch.bfloat16))
    assert trained is not None
    trained.train(range(1))
    everywhere = trained.optimizer.state_dict()
    alone = sharded(trained).state_dict(rank=2)
    names = alone["param_groups"][0]["param_names"]
    return sorted(alone["state"]), names, repr(alone) == repr(everywhere)


def test_fault_43_and_47_and_48_a_gathered_state_loads_as_it_is_and_is_left_as_it_is(rank_pools: RankPools) -> None:
    wrong = rank_pools.of(4).run(gather_and_load)

    assert not [each for of_rank in wrong for each in of_rank]


def test_fault_47_one_rank_alone_holds_what_was_gathered_for_it(rank_pools: RankPools) -> None:
    ranks = rank_pools.of(4).run(gather_on_one_rank)

    assert [is_whole for _, _, is_whole in ranks] == [False, False, True, False]
    assert [len(stepped) for stepped, _, _ in ranks] == [0, 0, 6, 0]
    assert all(names[:2] == ["first.wide", "first.bias"] for _, names, _ in ranks)
