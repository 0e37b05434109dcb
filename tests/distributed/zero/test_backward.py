"""Gradients inside and after a backward, looked at one thing at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from shardkeep.errors import StateError
from tests.distributed.launcher import RankPools
from tests.distributed.zero.gradient_cases import Checkpointed, Parts
from tests.distributed.zero.oracle import (
    STAGES,
    Plan,
    Tiny,
    tiny_batch,
    unsharded,
    whole_gradients,
    whole_parameters,
)
from tests.distributed.zero.small_steps import RATE, OneVector, assert_equal, assert_near, backward, over, record


def checkpointed_with_reentry(rank: int, world_size: int) -> None:
    plan = Plan(max_norms=(None, None, None), micro_batches=2)
    wanted = unsharded(lambda: Checkpointed(reentrant=False), torch.optim.SGD, RATE, plan, world_size)
    for stage in STAGES:
        model = Checkpointed(reentrant=True)
        optimizer = over(model, stage)
        for step in range(3):
            optimizer.zero_grad()
            for micro_batch in range(2):
                output = model(tiny_batch(step, micro_batch, rank))
                output.backward(2 * output.detach() / output.numel())  # of the mean of squares
            optimizer.step()
            assert not optimizer._rounds._waiting
        assert_near(whole_parameters(model, optimizer), wanted.parameters, stage)


def test_fault_08_reentrant_checkpoints_leave_nothing_for_the_next_step(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(checkpointed_with_reentry)


def count_sums(rank: int, world_size: int) -> None:
    for stage in STAGES:
        model = Parts()
        optimizer = over(model, stage)
        sums, counts = record(optimizer), []
        for step in range(4):
            backwards = 2 if step == 2 else 1
            for _ in range(backwards):
                model(tiny_batch(step, 0, rank), "abc").sum().backward()
            counts.append(len(sums.sent) / backwards)
            sums.sent.clear()
            optimizer.step()
            optimizer.zero_grad()
        assert set(counts) == {len(optimizer._layout.buckets)}, (stage, counts)


def test_fault_09_every_backward_sends_each_bucket_once(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(count_sums)


def straddle(rank: int, world_size: int) -> None:
    for stage in STAGES:
        model = OneVector()
        optimizer = over(model, stage, persistent_elements=0)
        model(torch.arange(37.0) * (rank + 1)).backward()
        wanted = torch.arange(37.0) * sum(range(1, world_size + 1)) / world_size
        assert torch.equal(whole_gradients(optimizer)["one"], wanted), stage


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_fault_12_a_parameter_over_several_ranks_is_put_together_right(rank_pools: RankPools, world_size: int) -> None:
    rank_pools.of(world_size).run(straddle)


def watch_memory_under_way(rank: int, world_size: int) -> None:
    for stage in STAGES:
        model = nn.Sequential(*(nn.Linear(7, 7) for _ in range(8)))
        optimizer = over(model, stage, bucket_mb=0.0003, persistent_elements=0)
        sums = record(optimizer)
        for step in range(3):
            model(tiny_batch(step, 0, rank)).sum().backward()
        assert len(sums.sent) >= 3 * 8


def test_fault_17_memory_of_a_sum_under_way_is_not_written(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(watch_memory_under_way)


def watch_hooks_of_users(rank: int, world_size: int) -> None:
    for stage in STAGES:
        model, alone = Tiny(), Tiny()
        seen: list[torch.Tensor] = []
        backward(alone, rank)
        weight = model.last.weight
        weight.register_post_accumulate_grad_hook(lambda one, seen=seen: seen.append(one.grad.clone()))
        optimizer = over(model, stage)
        weight.register_post_accumulate_grad_hook(lambda one, seen=seen: seen.append(one.grad))
        backward(model, rank)
        assert alone.last.weight.grad is not None
        assert torch.equal(seen[0], alone.last.weight.grad)
        assert (seen[1] is None) == (stage > 1)
        assert (weight.grad is None) == (stage > 1)
        optimizer.close()


def test_fault_19_hooks_of_users_see_this_ranks_whole_gradient_before_it_leaves(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(watch_hooks_of_users)


def order_of_sums(rank: int, world_size: int) -> list[list[int]]:
    found = []
    for stage in (1, 2):
        model = Parts()
        optimizer = over(model, stage, bucket_mb=0.00001)
        sums = record(optimizer)
        for step in range(3):
            model(tiny_batch(step, 0, rank), ("abc", "bac", "c")[(rank + step) % 3]).sum().backward()
        found.append(sums.sent)
    return found


def test_fault_21_buckets_leave_in_one_order_whatever_order_gradients_come_in(rank_pools: RankPools) -> None:
    first, *others = rank_pools.of(3).run(order_of_sums)

    assert all(other == first for other in others)


def write_in_place(rank: int, world_size: int) -> None:
    for stage in (1, 2):
        model = Tiny()
        optimizer = over(model, stage)
        assert all(one.is_leaf and one.grad_fn is None for one in model.parameters())
        loss = model(tiny_batch(0, 0, rank)).square().mean()
        loss.backward()
        with torch.no_grad():
            for one in model.parameters():
                one.mul_(0.5)
        before = {name: one.detach().clone() for name, one in model.named_parameters()}
        gradients = whole_gradients(optimizer)
        optimizer.step()
        for name, one in model.named_parameters():
            assert torch.equal(one, before[name].add(gradients[name], alpha=-0.1)), (stage, name)


def test_fault_22_parameters_are_leaves_that_may_be_written_in_place(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(write_in_place)


def keep_local_gradients(rank: int, world_size: int) -> None:
    model, alone = Tiny(), Tiny()
    optimizer = over(model, 1)
    for micro_batch in range(3):
        if micro_batch == 1:
            with optimizer.no_sync():
                backward(model, rank, micro_batch=micro_batch)
        else:
            backward(model, rank, micro_batch=micro_batch)
        backward(alone, rank, micro_batch=micro_batch)
    assert_equal(
        {name: one.grad for name, one in model.named_parameters() if one.grad is not None},
        {name: one.grad for name, one in alone.named_parameters() if one.grad is not None},
    )
    optimizer.zero_grad()
    assert all(one.grad is None for one in model.parameters())


def test_at_stage_1_grad_is_this_ranks_own(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(keep_local_gradients)


def leave_early(rank: int, world_size: int) -> None:
    """A bucket leaves with the last gradient that it can get, though members of it are frozen now."""
    for stage in (1, 2):
        model = nn.Sequential(nn.Linear(7, 7), nn.Linear(7, 7))
        optimizer = over(model, stage, bucket_mb=1)
        model[0].bias.requires_grad_(False)
        sums = record(optimizer)
        seen: list[int] = []
        batch = tiny_batch(0, 0, rank).requires_grad_() * 1
        batch.register_hook(lambda _, sums=sums, seen=seen: seen.append(len(sums.sent)))
        model(batch).sum().backward()
        assert seen == [1]


def test_frozen_members_do_not_hold_a_bucket_back(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(leave_early)


class Fails(torch.autograd.Function):
    """Its backward raises, while `is_on`."""

    is_on = True

    @staticmethod
    def forward(ctx: Any, batch: torch.Tensor) -> torch.Tensor:
        return batch.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        if Fails.is_on:
            raise ValueError("backward fails")
        return gradients[0]


class FailsInTheMiddle(Tiny):
    """Between its layers."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = Fails.apply(torch.tanh(self.first(batch)))  # type: ignore[no-untyped-call]
        output: torch.Tensor = self.last(hidden * self.scale)
        return output


def go_on_after_a_failed_backward(rank: int, world_size: int) -> None:
    wanted = unsharded(Tiny, torch.optim.AdamW, RATE, Plan(max_norms=(None, None)), world_size)
    for stage in STAGES:
        model = FailsInTheMiddle()
        optimizer = over(model, stage, torch.optim.AdamW)
        for step in range(2):
            optimizer.zero_grad()
            Fails.is_on = True
            with pytest.raises(ValueError, match="backward fails"):
                backward(model, rank, step=step)
            if step == 0:
                with pytest.raises(StateError, match="zero_grad"):
                    optimizer.step()
            Fails.is_on = False
            if step == 0:
                optimizer.zero_grad()
            else:  # found out by the next forward
                backward(model, rank, step=step)
                with pytest.raises(StateError, match="zero_grad"):
                    optimizer.clip_grad_norm_(1.0)
                optimizer.zero_grad()
            backward(model, rank, step=step)
            optimizer.step()
        assert_equal(whole_parameters(model, optimizer), wanted.parameters, stage)


def test_training_goes_on_after_a_backward_that_raised(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(go_on_after_a_failed_backward)


def penalize(rank: int, world_size: int) -> None:
    """A gradient penalty: gradients of gradients, and autograd.grad() on one rank alone."""

    def losses(model: nn.Module, step: int, micro_batch: int, rank: int, count: int) -> list[torch.Tensor]:
        batch = tiny_batch(step, micro_batch, rank).requires_grad_()
        output = model(batch)
        (gradient,) = torch.autograd.grad(output.sum(), batch, create_graph=True)
        return [output.square().mean() + gradient.square().sum()]

    wanted = unsharded(Tiny, torch.optim.SGD, RATE, Plan(max_norms=(None, None)), world_size, losses=losses)
    for stage in (1, 2):
        model = Tiny()
        optimizer = over(model, stage)
        sums = record(optimizer)
        for step in range(2):
            optimizer.zero_grad()
            for loss in losses(model, step, 0, rank, 1):
                loss.backward()
            kept = [None if one.grad is None else one.grad.clone() for one in model.parameters()]
            if rank == 0:
                with optimizer.no_sync():  # no buffers are sent either
                    torch.autograd.grad(model(tiny_batch(9, 9, 0)).sum(), list(model.parameters()))
            for one, before in zip(model.parameters(), kept, strict=True):
                assert (one.grad is None) == (before is None)
                assert one.grad is None or before is None or torch.equal(one.grad, before)
            optimizer.step()
        assert len(sums.sent) == 2 * len(optimizer._layout.buckets)
        assert_equal(whole_parameters(model, optimizer), wanted.parameters, stage)


def test_gradients_that_autograd_is_asked_for_are_not_reduced(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(penalize)


def two_optimizers(rank: int, world_size: int) -> None:
    """As for Muon: matrices whole in one, the rest in another."""
    for stage in STAGES:
        model, alone = Tiny(), Tiny()
        matrices = [one for one in model.parameters() if one.ndim == 2]
        others = [one for one in model.parameters() if one.ndim != 2]
        first = over(model, stage, torch.optim.Muon, params=matrices, layout="whole")
        second = over(model, stage, torch.optim.AdamW, params=others)
        reference = [
            torch.optim.Muon([one for one in alone.parameters() if one.ndim == 2], **RATE),
            torch.optim.AdamW([one for one in alone.parameters() if one.ndim != 2], **RATE),
        ]
        for step in range(2):
            total: dict[str, torch.Tensor] = {}
            for each in range(world_size):
                alone.zero_grad()
                backward(alone, each, step=step)
                for name, one in alone.named_parameters():
                    assert one.grad is not None
                    total[name] = one.grad.clone() if name not in total else total[name].add_(one.grad)
            for name, one in alone.named_parameters():
                one.grad = total[name] / world_size
            for optimizer in reference:
                optimizer.step()
            backward(model, rank, step=step)
            first.step()
            second.step()
        with first.gathered(model), second.gathered(model):
            assert_equal(dict(model.named_parameters()), dict(alone.named_parameters()), stage)


def test_two_optimizers_may_share_a_model(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(two_optimizers)


def sparse_gradients(rank: int, world_size: int) -> None:
    for stage in STAGES:
        model = nn.Embedding(10, 3, sparse=True)
        optimizer = over(model, stage)
        with pytest.raises(StateError, match="weight has a sparse gradient"):
            model(torch.tensor([1, 2])).sum().backward()
        optimizer.zero_grad()
        optimizer.close()


def test_sparse_gradients_are_an_error_that_names_the_parameter(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(sparse_gradients)


def change_kept_gradients(rank: int, world_size: int) -> None:
    def change(model: Tiny) -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)

    def replace(model: Tiny) -> None:
        model.scale.grad = torch.tensor(3.0)

    for wrong in (change, replace):
        model = Tiny()
        optimizer = over(model, 1)
        backward(model, rank)
        wrong(model)
        with pytest.raises(StateError, match="clip_grad_norm_"):
            optimizer.step()
        optimizer.zero_grad()
        backward(model, rank)
        optimizer.step()


def test_changing_grad_at_stage_1_is_an_error(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(change_kept_gradients)
