"""Norms of all gradients, and what multiplies them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.distributed.launcher import RankPools
from tests.distributed.zero.oracle import (
    STAGES,
    Tiny,
    whole_gradients,
    whole_parameters,
)
from tests.distributed.zero.small_steps import OneVector, assert_equal, backward, over


def norms(rank: int, world_size: int) -> dict[tuple[Any, ...], float]:
    found = {}
    for stage in STAGES:
        for offload in (None, "cpu"):
            for layout in ("flat", "whole"):
                for norm_type in (0.5, 1.0, 2.0, 30.0, math.inf):
                    model = Tiny()
                    optimizer = over(model, stage, offload=offload, layout=layout)
                    backward(model, rank)
                    gradients = whole_gradients(optimizer)
                    norm = optimizer.clip_grad_norm_(1e-3, norm_type)
                    assert (type(norm), norm.shape, norm.dtype) == (torch.Tensor, (), torch.float32)
                    after = float(optimizer.clip_grad_norm_(math.inf, norm_type))
                    assert after == pytest.approx(1e-3, rel=1e-2)
                    factor = float((1e-3 / (norm + 1e-6)).clamp(max=1.0))
                    wanted = {name: one * factor for name, one in gradients.items()}
                    assert_equal(whole_gradients(optimizer), wanted, (stage, offload, layout, norm_type))
                    whole = torch.cat([one.flatten() for one in gradients.values()])
                    assert float(norm) == pytest.approx(float(torch.linalg.vector_norm(whole, norm_type)), rel=1e-6)
                    found[stage, offload, layout, norm_type] = float(norm)
    return found


@pytest.mark.parametrize("world_size", [1, 3])
def test_fault_27_the_norm_is_of_all_gradients_whole_on_every_rank(rank_pools: RankPools, world_size: int) -> None:
    first, *others = rank_pools.of(world_size).run(norms)

    assert all(other == first for other in others)
    for norm_type in (0.5, 1.0, 2.0, 30.0, math.inf):
        assert len({norm for key, norm in first.items() if key[-1] == norm_type}) == 1


def norm_where_ranks_own_nothing(rank: int, world_size: int) -> list[float]:
    found = []
    for stage in STAGES:
        model = OneVector(3)
        optimizer = over(model, stage, persistent_elements=0, layout="whole")
        model(torch.tensor([1.0, 2.0, 2.0])).backward()
        norm = optimizer.clip_grad_norm_(1.0)
        assert norm.shape == ()
        found.append(float(norm))
        optimizer.step()
        assert torch.allclose(whole_parameters(model, optimizer)["one"], -0.1 * torch.tensor([1.0, 2.0, 2.0]) / 3)
    return found


def test_fault_25_ranks_that_own_nothing_have_the_same_norm(rank_pools: RankPools) -> None:
    assert rank_pools.of(4).run(norm_where_ranks_own_nothing) == [[3.0, 3.0, 3.0]] * 4


def norm_of_whole_and_divided(rank: int, world_size: int) -> set[float]:
    found = set()
    for persistent_elements in (0, 20, 10_000):
        model = Tiny()
        optimizer = over(model, 3, persistent_elements=persistent_elements)
        backward(model, rank)
        found.add(float(optimizer.clip_grad_norm_(1.0)))
    return found


def test_fault_26_parameters_that_stay_whole_at_stage_3_count_once_in_the_norm(rank_pools: RankPools) -> None:
    found = rank_pools.of(2).run(norm_of_whole_and_divided)

    assert found[0] == found[1]
    assert len(found[0]) == 1


def clip_what_is_not_finite(rank: int, world_size: int) -> None:
    for stage in STAGES:
        model = OneVector(5)
        optimizer = over(model, stage, persistent_elements=0)
        factor = torch.tensor([1.0, math.inf, 2.0, 3.0, 4.0]) if rank == 1 else torch.ones(5)
        model(factor).backward()
        before = whole_gradients(optimizer)
        assert math.isinf(optimizer.clip_grad_norm_(1.0))
        assert_equal(whole_gradients(optimizer), before, stage)
        with pytest.raises(RuntimeError, match="inf"):
            optimizer.clip_grad_norm_(1.0, error_if_nonfinite=True)


def test_fault_24_clipping_makes_no_nan_of_an_infinite_norm(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(clip_what_is_not_finite)


def mean_and_sum(rank: int, world_size: int) -> None:
    for stage in STAGES:
        for reduce_op, wanted in (("mean", 2.0), ("sum", 6.0)):
            model = OneVector(5)
            optimizer = over(model, stage, persistent_elements=0, reduce_op=reduce_op)
            model(torch.full((5,), rank + 1.0)).backward()
            assert torch.equal(whole_gradients(optimizer)["one"], torch.full((5,), wanted)), (stage, reduce_op)


def test_fault_30_mean_is_divided_and_sum_is_not(rank_pools: RankPools) -> None:
    rank_pools.of(3).run(mean_and_sum)


def scale_once(rank: int, world_size: int) -> None:
    for stage in STAGES:
        model = OneVector(5)
        optimizer = over(model, stage, persistent_elements=0)
        with optimizer.no_sync():
            model(torch.ones(5)).backward()
        optimizer.scale_grads_(0.5)  # what waited is reduced first
        assert torch.equal(whole_gradients(optimizer)["one"], torch.full((5,), 0.5))
        model(torch.ones(5)).backward()
        assert torch.equal(whole_gradients(optimizer)["one"], torch.full((5,), 1.5))
        optimizer.step()
        assert torch.equal(
            whole_parameters(model, optimizer)["one"], torch.zeros(5).add(torch.full((5,), 1.5), alpha=-0.1)
        )


def test_fault_31_scaling_reaches_what_waits_and_nothing_twice(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(scale_once)
