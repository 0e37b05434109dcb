"""What a step does beside stepping."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch

from shardkeep.zero import GradScaler
from tests.distributed.launcher import RankPools
from tests.distributed.zero.oracle import (
    STAGES,
    Plan,
    Tiny,
    tiny_losses,
    unsharded,
    whole_parameters,
    whole_state,
)
from tests.distributed.zero.small_steps import RATE, assert_equal, assert_near, backward, over


def closures_and_hooks(rank: int, world_size: int) -> None:
    wanted = unsharded(Tiny, torch.optim.AdamW, RATE, Plan(max_norms=(None,)), world_size)
    for stage in STAGES:
        model = Tiny()
        calls: list[str] = []
        optimizer = over(model, stage, torch.optim.AdamW)
        optimizer.register_step_pre_hook(lambda *_, calls=calls: calls.append("pre"))
        optimizer.register_step_post_hook(lambda *_, calls=calls: calls.append("post"))

        def closure(model: Tiny = model, calls: list[str] = calls, optimizer: Any = optimizer) -> torch.Tensor:
            calls.append("closure")
            optimizer.zero_grad()
            (loss,) = tiny_losses(model, 0, 0, rank, 1)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        assert loss.requires_grad
        assert calls == ["pre", "closure", "post"]
        assert_equal(whole_parameters(model, optimizer), wanted.parameters, stage)


def test_a_closure_is_evaluated_once_between_the_hooks_of_a_step(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(closures_and_hooks)


def zero_grad_of_the_model(rank: int, world_size: int) -> None:
    """As many loops do it; a skipped step leaves nothing for the next one either."""
    wanted = unsharded(Tiny, torch.optim.AdamW, RATE, Plan(max_norms=(None, None)), world_size)
    for stage in STAGES:
        model = Tiny()
        optimizer = over(model, stage, torch.optim.AdamW)
        scaler = GradScaler(init_scale=4.0)
        for step, factor in ((0, math.inf), (0, 1.0), (1, 1.0)):
            (loss,) = tiny_losses(model, step, 0, rank, 1)
            scaler.scale(loss * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            model.zero_grad()
        assert_equal(whole_parameters(model, optimizer), wanted.parameters, stage)


def test_a_step_uses_its_gradients_up(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(zero_grad_of_the_model)


def local_gradients_after_a_step(rank: int, world_size: int) -> None:
    model, alone = Tiny(), Tiny()
    optimizer = over(model, 1)
    for step in range(2):
        alone.load_state_dict(model.state_dict())
        alone.zero_grad()
        backward(model, rank, step=step)
        backward(alone, rank, step=step)
        assert torch.equal(model.last.weight.grad, alone.last.weight.grad)  # type: ignore[arg-type]
        optimizer.step()
        assert model.last.weight.grad is not None
    assert optimizer.grad_slice("last.weight") is None


def test_at_stage_1_grad_is_of_the_backwards_since_the_last_step(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(local_gradients_after_a_step)


def step_without_gradients(rank: int, world_size: int) -> None:
    for stage in STAGES:
        model = Tiny()
        optimizer = over(model, stage, torch.optim.AdamW, weight_decay=0.5)
        before = whole_parameters(model, optimizer)
        with pytest.warns(UserWarning, match="without a gradient"):
            optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.step()  # said once
        assert_equal(whole_parameters(model, optimizer), before)
        assert not whole_state(optimizer)
        assert float(optimizer.clip_grad_norm_(1.0)) == 0.0


def test_a_step_without_gradients_warns_once_and_changes_nothing(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(step_without_gradients)


def train_without_warnings(rank: int, world_size: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for stage in STAGES:
            for options in ({}, {"offload": "cpu"}, {"layout": "whole"}):
                model = Tiny(torch.bfloat16)
                optimizer = over(model, stage, torch.optim.AdamW, **options)
                scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
                for step in range(2):
                    with optimizer.no_sync():
                        backward(model, rank, step=step)
                    backward(model, rank, step=step)
                    optimizer.clip_grad_norm_(1.0)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                model.state_dict()
                optimizer.close()


def test_training_warns_of_nothing(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(train_without_warnings)


def train_fused(rank: int, world_size: int) -> None:
    options = {**RATE, "fused": True}
    wanted = unsharded(Tiny, torch.optim.AdamW, options, Plan(max_norms=(None, None)), world_size)
    for stage in STAGES:
        model = Tiny()
        optimizer = over(model, stage, torch.optim.AdamW, fused=True)
        for step in range(2):
            optimizer.zero_grad()
            backward(model, rank, step=step)
            optimizer.step()
        assert_near(whole_parameters(model, optimizer), wanted.parameters, stage)


def test_fused_steps_differ_by_rounding_alone(rank_pools: RankPools) -> None:
    """Its vector and its scalar code round differently, and where a slice ends decides which is used."""
    rank_pools.of(2).run(train_fused)
