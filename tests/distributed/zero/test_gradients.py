"""What gradients do between autograd and the step, looked at one thing at a time."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from shardkeep.errors import ConfigurationError, StateError
from shardkeep.zero import GradScaler, ShardedOptimizer
from shardkeep.zero.collectives import Collectives, PendingSum
from tests.distributed.launcher import RankPools
from tests.distributed.zero.gradient_cases import Checkpointed, Parts
from tests.distributed.zero.oracle import (
    STAGES,
    Plan,
    Stage,
    Tiny,
    tiny_batch,
    tiny_losses,
    unsharded,
    whole_gradients,
    whole_parameters,
    whole_state,
)

RATE: dict[str, Any] = {"lr": 0.1}


def over(model: nn.Module, stage: Stage, inner: type[torch.optim.Optimizer] = torch.optim.SGD, **options: Any) -> Any:
    """An optimizer with several buckets and units."""
    return ShardedOptimizer(
        model, inner, stage=stage, **{"bucket_mb": 0.0004, "persistent_elements": 20, **RATE, **options}
    )


def backward(model: nn.Module, rank: int, *, step: int = 0, micro_batch: int = 0) -> None:
    tiny_losses(model, step, micro_batch, rank, 1)[0].backward()


def assert_equal(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], note: object = "") -> None:
    assert found.keys() == wanted.keys(), note
    for name, value in found.items():
        assert torch.equal(value, wanted[name]), (note, name)


def assert_near(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], note: object = "") -> None:
    assert found.keys() == wanted.keys(), note
    for name, value in found.items():
        torch.testing.assert_close(value, wanted[name], rtol=1e-5, atol=1e-6, msg=f"{note} {name}")


class Recorder(Collectives):
    """Notes what is sent, and that nothing under way is written."""

    def __init__(self, inner: Collectives) -> None:
        super().__init__(inner._group)
        self.sent: list[int] = []
        self._flying: list[tuple[PendingSum, torch.Tensor]] = []

    def start_sum(self, flat: torch.Tensor, bounds: Any) -> PendingSum:
        self._flying = [(one, copy) for one, copy in self._flying if one.work is not None]
        for one, copy in self._flying:
            assert torch.equal(one.sent, copy), "written while it was under way"
            assert one.sent.untyped_storage().data_ptr() != flat.untyped_storage().data_ptr()
        pending = super().start_sum(flat, bounds)
        self.sent.append(flat.numel())
        self._flying.append((pending, flat.clone()))
        return pending


def record(optimizer: ShardedOptimizer) -> Recorder:
    found = Recorder(optimizer._collectives)
    optimizer._rounds._collectives = found
    return found


# --- backward --------------------------------------------------------------------------------------------------------


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


class OneVector(nn.Module):
    """One parameter that ranks cut."""

    def __init__(self, size: int = 37) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.zeros(size))

    def forward(self, factor: torch.Tensor) -> torch.Tensor:
        return (self.one * factor).sum()


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


# --- norms and scales ------------------------------------------------------------------------------------------------


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


# --- groups of ranks and of parameters -------------------------------------------------------------------------------


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


# --- the step --------------------------------------------------------------------------------------------------------


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
