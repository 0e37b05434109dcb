"""Stage 3: however a model uses its parameters, training is the unsharded optimizer's and stage 2's, bit for bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from shardkeep.zero import ShardedOptimizer
from tests.distributed.launcher import RankPools
from tests.distributed.zero import unit_models
from tests.distributed.zero.oracle import Losses, Plan, differences, sharded, unsharded

OPTIONS: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.1}


def shard(model: nn.Module, stage: int = 3, **options: Any) -> ShardedOptimizer:
    """Every module is a unit, every parameter a bucket."""
    given = {"bucket_mb": 0.0002, "persistent_elements": 0, **OPTIONS, **options}
    return ShardedOptimizer(model, torch.optim.AdamW, stage=stage, **given)  # type: ignore[arg-type]


def held_units(optimizer: ShardedOptimizer) -> list[int]:
    """The units whose memory is there."""
    units = optimizer._units
    assert units is not None
    return [
        number
        for number, unit in units._units.items()
        if unit.pins or any(memory.flat is not None for memory in unit.memories)
    ]


def train_all(rank: int, world_size: int, *, names: list[str], losses: str, plan: Plan) -> list[str]:
    """What is not the oracle's, by model; and units that stay."""
    told = []
    compute: Losses = getattr(unit_models, losses)
    for name in names:
        make = partial(unit_models.make, name)
        wanted = unsharded(make, torch.optim.AdamW, OPTIONS, plan, world_size, losses=compute)
        for stage in (2, 3):
            model = make()
            optimizer = shard(model, stage)
            outcome = sharded(model, optimizer, plan, rank, losses=compute)
            outcome.gradients.clear()  # parameters and state tell; what is not used has zero here and none there
            found = differences(outcome, wanted)
            if stage == 3 and (held := held_units(optimizer)):
                found.append(f"units {held} are still there")
            if found:
                told.append(f"{name}, stage {stage}: {'; '.join(found)}")
    return told


NAMED_FAULTS = {
    "called twice",
    "called twice, once without gradient",
    "checkpointed, not reentrant",
    "checkpointed in part",
    "mixed dtypes",
}


@pytest.mark.parametrize("name", [name for name in unit_models.MODELS if name not in NAMED_FAULTS])
def test_training_is_bit_equal_to_the_unsharded_optimizer(rank_pools: RankPools, name: str) -> None:
    plan = Plan(micro_batches=2, backwards=2)

    told = rank_pools.of(2).run(train_all, names=[name], losses="losses", plan=plan)

    assert told == [[], []]


SOME = [
    "checkpointed, reentrant",
    "checkpointed, not reentrant",
    "called twice",
    "many outputs",
    "parameters of the root",
    "tied",
    "adapted",
    "unused",
    "recurrent",
    "by keyword",
]


def train_reentrant(rank: int, world_size: int) -> None:
    """A parameter has a gradient for every checkpoint, so sums are rounded in another order."""
    make, plan, losses = partial(unit_models.make, "checkpointed, reentrant"), Plan(), unit_models.joint_losses
    wanted = unsharded(make, torch.optim.AdamW, OPTIONS, plan, world_size, losses=losses)
    model = make()
    found = sharded(model, shard(model), plan, rank, losses=losses)
    torch.testing.assert_close(found.parameters, wanted.parameters, rtol=1e-5, atol=1e-6)


def test_reentrant_checkpoints_of_two_forwards_add_up(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(train_reentrant)


def test_forwards_without_backward_between_do_no_harm(rank_pools: RankPools) -> None:
    """Two forwards of one loss, one under no_grad() and eval() between them, and one whose graph is thrown away."""
    told = rank_pools.of(2).run(train_all, names=SOME[1:], losses="joint_losses", plan=Plan(backwards=2))

    assert told == [[], []]


def test_gradients_of_gradients_are_right(rank_pools: RankPools) -> None:
    """create_graph=True keeps parameters of the first backward for the second."""
    names = [
        "plain",
        "called twice",
        "parameters of the root",
        "checkpointed, not reentrant",
        "adapted",
        "parametrized",
    ]

    told = rank_pools.of(2).run(train_all, names=names, losses="penalized_losses", plan=Plan(backwards=2))

    assert told == [[], []]


def test_three_ranks_train_as_two_do(rank_pools: RankPools) -> None:
    told = rank_pools.of(3).run(train_all, names=SOME, losses="losses", plan=Plan())

    assert told == [[], [], []]


def test_fault_23_modules_called_twice_also_without_gradient_stay_whole_as_long_as_they_are_used(
    rank_pools: RankPools,
) -> None:
    names = ["called twice", "called twice, once without gradient"]

    told = rank_pools.of(2).run(train_all, names=names, losses="losses", plan=Plan(micro_batches=2, backwards=2))

    assert told == [[], []]


def test_fault_59_parameters_of_several_dtypes_in_a_module_are_gathered_in_their_own(rank_pools: RankPools) -> None:
    told = rank_pools.of(2).run(train_all, names=["mixed dtypes"], losses="losses", plan=Plan(backwards=2))

    assert told == [[], []]


def test_fault_60_forwards_that_checkpoints_stop_early_leave_no_unit_in_use(rank_pools: RankPools) -> None:
    """Not all modules of a checkpoint are called again in backward, and the last one of them does not return."""
    names = ["checkpointed, not reentrant", "checkpointed in part"]

    told = rank_pools.of(2).run(train_all, names=names, losses="losses", plan=Plan(micro_batches=2, backwards=2))

    assert told == [[], []]


def train_compiled(rank: int, world_size: int) -> None:
    make, plan, losses = partial(unit_models.make, "adapted"), Plan(), unit_models.losses
    wanted = unsharded(make, torch.optim.AdamW, OPTIONS, plan, world_size, losses=losses)
    model = make()
    optimizer = shard(model)
    model.compile(backend="eager")
    outcome = sharded(model, optimizer, plan, rank, losses=losses)
    assert differences(outcome, wanted) == []
    assert held_units(optimizer) == []


def test_a_compiled_model_trains_as_it_does_uncompiled(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(train_compiled)


class Reader(unit_models.Block):
    """Uses the parameters of its submodules itself."""

    def forward(self, x: torch.Tensor) -> Any:
        return torch.tanh(x @ self.up.weight.T + self.up.bias) @ self.down.weight.T + self.down(self.up(x))


def make_reader() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(unit_models.Block(), Reader(), nn.Linear(unit_models.WIDTH, 3))


def train_blocks(rank: int, world_size: int) -> list[str]:
    told = []
    for make in (make_reader, partial(unit_models.make, "checkpointed, not reentrant")):
        wanted = unsharded(make, torch.optim.AdamW, OPTIONS, Plan(), world_size, losses=unit_models.losses)
        model = make()
        optimizer = shard(model, whole_modules=(unit_models.Block,))
        outcome = sharded(model, optimizer, Plan(), rank, losses=unit_models.losses)
        told += differences(outcome, wanted)
        assert held_units(optimizer) == []
        blocks = sum(isinstance(one, unit_models.Block) for one in model.modules())
        assert optimizer._units is not None
        assert len(optimizer._units._units) == blocks + 1
    return told


def test_whole_modules_are_one_unit_each_with_all_below_them(rank_pools: RankPools) -> None:
    assert rank_pools.of(2).run(train_blocks) == [[], []]
