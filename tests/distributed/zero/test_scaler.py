"""Loss scaling: unscaled once, checked on all ranks, skipped alike, resumed with the same scales."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

from shardkeep.errors import ConfigurationError
from shardkeep.zero import GradScaler, ShardedOptimizer
from tests.distributed.launcher import RankPools
from tests.distributed.zero.oracle import (
    STAGES,
    Outcome,
    Plan,
    Stage,
    Tiny,
    differences,
    tiny_batch,
    tiny_losses,
    unsharded,
    whole_gradients,
    whole_parameters,
    whole_state,
)

WORLD_SIZE = 2
OPTIONS: dict[str, Any] = {"lr": 1e-2}


def sharded_tiny(stage: Stage, **options: Any) -> tuple[Tiny, ShardedOptimizer]:
    model = Tiny()
    return model, ShardedOptimizer(
        model, torch.optim.AdamW, stage=stage, bucket_mb=0.0004, persistent_elements=20, **OPTIONS, **options
    )


def backward(model: nn.Module, scaler: GradScaler, rank: int, *, step: int = 0, factor: float = 1.0) -> None:
    (loss,) = tiny_losses(model, step, 0, rank, 1)
    scaler.scale(loss * factor).backward()


def assert_equal(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        assert torch.equal(value, wanted[name]), name


# --- what a step comes to --------------------------------------------------------------------------------------------


def train_scaled(rank: int, world_size: int, *, unscales: bool) -> list[str]:
    max_norms = (None, 0.3) if unscales else (None, None)
    wanted = unsharded(Tiny, torch.optim.AdamW, OPTIONS, Plan(max_norms=max_norms), world_size)
    wanted.gradients.clear()
    wrong = []
    for stage in STAGES:
        model, optimizer = sharded_tiny(stage)
        scaler, found = GradScaler(init_scale=1024.0), Outcome()
        for step, max_norm in enumerate(max_norms):
            optimizer.zero_grad()
            backward(model, scaler, rank, step=step)
            if unscales:
                scaler.unscale_(optimizer)
            if max_norm is not None:
                found.norms.append(float(optimizer.clip_grad_norm_(max_norm)))
            scaler.step(optimizer)
            scaler.update()
        found.parameters = whole_parameters(model, optimizer)
        wrong += [f"stage {stage}: {each}" for each in differences(found, wanted)]
    return wrong


@pytest.mark.parametrize("unscales", [True, False])
def test_fault_31_gradients_are_unscaled_once_before_clipping_or_by_the_step(
    rank_pools: RankPools, unscales: bool
) -> None:
    wrong = rank_pools.of(WORLD_SIZE).run(train_scaled, unscales=unscales)

    assert not [each for of_rank in wrong for each in of_rank]


def unscale_twice(rank: int, world_size: int) -> None:
    for stage in STAGES:
        model, optimizer = sharded_tiny(stage)
        scaler = GradScaler(init_scale=8.0)
        backward(model, scaler, rank)
        scaler.unscale_(optimizer)
        once = whole_gradients(optimizer)
        with pytest.raises(RuntimeError, match="already been called"):
            scaler.unscale_(optimizer)
        assert_equal(whole_gradients(optimizer), once)
        scaler.step(optimizer)
        with pytest.raises(RuntimeError, match="already been called"):
            scaler.step(optimizer)
        with pytest.raises(RuntimeError, match="after step"):
            scaler.unscale_(optimizer)


def test_fault_31_unscaling_or_stepping_twice_is_an_error(rank_pools: RankPools) -> None:
    rank_pools.of(WORLD_SIZE).run(unscale_twice)


# --- gradients that are not finite -----------------------------------------------------------------------------------


def overflow_on_one_rank(rank: int, world_size: int, *, bad: float) -> None:
    for stage in STAGES:
        for bad_rank in range(world_size):
            model, optimizer = sharded_tiny(stage)
            scaler = GradScaler(init_scale=4.0)
            before = whole_parameters(model, optimizer)
            backward(model, scaler, rank, factor=bad if rank == bad_rank else 1.0)
            scaler.unscale_(optimizer)
            norm = optimizer.clip_grad_norm_(1.0)
            assert not torch.isfinite(norm)
            scaler.step(optimizer)
            scaler.update()
            assert scaler.get_scale() == 2.0, (stage, bad_rank)
            assert_equal(whole_parameters(model, optimizer), before)
            assert not whole_state(optimizer)
            optimizer.zero_grad()
            backward(model, scaler, rank, step=1)
            scaler.step(optimizer)
            scaler.update()
            after = whole_parameters(model, optimizer)
            assert scaler.get_scale() == 2.0
            assert all(one.isfinite().all() and not torch.equal(one, before[name]) for name, one in after.items())


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_fault_24_a_step_whose_norm_is_not_finite_is_skipped(rank_pools: RankPools, bad: float) -> None:
    rank_pools.of(WORLD_SIZE).run(overflow_on_one_rank, bad=bad)


def overflow_in_one_parameter(rank: int, world_size: int) -> None:
    for stage in STAGES:
        for index in range(5):
            model, optimizer = sharded_tiny(stage)
            scaler = GradScaler(init_scale=4.0)
            handle = list(model.parameters())[index].register_hook(lambda grad: grad * float("inf"))
            backward(model, scaler, rank)
            handle.remove()
            scaler.step(optimizer)
            scaler.update()
            assert scaler.get_scale() == 2.0, (stage, index)


def test_fault_28_whichever_parameter_overflows_all_ranks_skip(rank_pools: RankPools) -> None:
    rank_pools.of(3).run(overflow_in_one_parameter)


def step_with_ranks_that_own_nothing(rank: int, world_size: int) -> None:
    for stage in STAGES:
        for factor, scale in ((1.0, 4.0), (float("inf"), 2.0)):
            model = nn.Linear(3, 1, bias=False)
            optimizer = ShardedOptimizer(model, torch.optim.SGD, stage=stage, layout="whole", persistent_elements=0)
            scaler = GradScaler(init_scale=4.0)
            scaler.scale(model(torch.ones(2, 3)).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            assert scaler.get_scale() == scale, (stage, factor)


def test_fault_29_ranks_that_own_no_gradient_record_an_inf_check(rank_pools: RankPools) -> None:
    rank_pools.of(3).run(step_with_ranks_that_own_nothing)


# --- as torch's ------------------------------------------------------------------------------------------------------


def scales(
    scaler: GradScaler, model: nn.Module, optimizer: ShardedOptimizer, rank: int, steps: range, bad: int
) -> list[float]:
    found = []
    for step in steps:
        optimizer.zero_grad()
        backward(model, scaler, rank, step=step, factor=float("inf") if step == bad and rank == 1 else 1.0)
        scaler.step(optimizer)
        scaler.update()
        found.append(scaler.get_scale())
    return found


def resume_scaler(rank: int, world_size: int) -> None:
    for saved_after in (0, 4, 5, 6):
        model, optimizer = sharded_tiny(2)
        scaler = GradScaler(init_scale=1024.0, growth_interval=3)
        scales(scaler, model, optimizer, rank, range(saved_after), 3)
        state = scaler.state_dict()
        assert state.keys() == {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}
        assert state == {**torch.amp.GradScaler("cpu").state_dict(), **state}
        resumed = GradScaler()
        resumed.load_state_dict(state)
        rest = range(saved_after, 14)
        assert scales(resumed, model, optimizer, rank, rest, 3) == scales(scaler, model, optimizer, rank, rest, 3)


def test_E49_scales_after_a_resume_are_those_without_it(rank_pools: RankPools) -> None:
    rank_pools.of(WORLD_SIZE).run(resume_scaler)


def pass_through(rank: int, world_size: int) -> None:
    wanted = unsharded(Tiny, torch.optim.AdamW, OPTIONS, Plan(max_norms=(None,)), world_size)
    model, optimizer = sharded_tiny(2)
    scaler = GradScaler(enabled=False)
    (loss,) = tiny_losses(model, 0, 0, rank, 1)
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.state_dict() == {}
    assert_equal(whole_parameters(model, optimizer), wanted.parameters)


def test_a_scaler_that_is_not_enabled_passes_everything_through(rank_pools: RankPools) -> None:
    rank_pools.of(WORLD_SIZE).run(pass_through)


def test_other_optimizers_are_treated_as_torch_treats_them() -> None:
    ours, theirs = Tiny(), Tiny()
    for model, scaler in (ours, GradScaler("cpu")), (theirs, torch.amp.GradScaler("cpu")):
        optimizer = torch.optim.AdamW(model.parameters(), **OPTIONS)
        scaler.scale(model(tiny_batch(0, 0, 0)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_a_closure_is_refused_while_losses_are_scaled() -> None:
    model, optimizer = sharded_tiny(2)
    scaler = GradScaler("cpu")
    scaler.scale(model(tiny_batch(0, 0, 0)).sum()).backward()

    with pytest.raises(ConfigurationError, match="closure"):
        scaler.step(optimizer, lambda: 0.0)


@pytest.mark.parametrize("stage", STAGES)
def test_the_scaler_of_torch_is_an_error_that_names_ours(stage: Stage) -> None:
    model, optimizer = sharded_tiny(stage)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(tiny_batch(0, 0, 0)).sum()).backward()

    with pytest.raises(ConfigurationError, match=re.escape("shardkeep.zero.GradScaler")):
        scaler.step(optimizer)


def half_precision(rank: int, world_size: int) -> None:
    for stage in STAGES:
        model = Tiny(torch.float16)
        optimizer = ShardedOptimizer(model, torch.optim.SGD, lr=1.0, stage=stage, persistent_elements=20)
        scaler = GradScaler(init_scale=65536.0)
        before = whole_parameters(model, optimizer)
        for _ in range(40):  # the scale falls until fp16 gradients are finite
            optimizer.zero_grad()
            scaler.scale(model(tiny_batch(0, 0, rank).half()).float().square().mean() * 64).backward()
            scaler.step(optimizer)
            scaler.update()
        after = whole_parameters(model, optimizer)
        assert scaler.get_scale() < 65536.0
        assert all(one.isfinite().all() and not torch.equal(one, before[name]) for name, one in after.items())


def test_fp16_training_finds_a_scale(rank_pools: RankPools) -> None:
    rank_pools.of(WORLD_SIZE).run(half_precision)
