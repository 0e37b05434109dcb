"""Stage 3 under misuse and failure: freed parameters, exceptions, copies, moves; and how much is whole at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from shardkeep.errors import ConfigurationError, StateError
from shardkeep.zero import ShardedOptimizer
from tests.distributed.launcher import RankPools
from tests.distributed.zero import unit_models
from tests.distributed.zero.oracle import Plan, differences, sharded, unsharded
from tests.distributed.zero.test_units import OPTIONS, held_units, shard
from tests.distributed.zero.unit_models import WIDTH, Adapted, Block, batch


def small() -> Any:
    """Three units, the same on every rank."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 3))


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int) -> None:
    """One step."""
    optimizer.zero_grad()
    model(batch(step, 0, rank)).square().mean().backward()
    optimizer.step()


# --- freed parameters ------------------------------------------------------------------------------------------------


def read_freed(rank: int, _world_size: int) -> None:
    model = small()
    optimizer = shard(model)
    for parameter in model.parameters():
        shape = parameter.shape
        assert parameter.isnan().all()
        assert parameter.clone().shape == shape
        assert parameter.sum().isnan()
        assert "nan" in repr(parameter)
        assert parameter.detach().numpy().shape == shape
        assert "nan" in str(parameter.tolist())
        assert (parameter + 1).isnan().all()
        assert parameter.view(shape).shape == shape
        for write in (nn.init.normal_, lambda one: one.copy_(torch.ones(1)), lambda one: one.mul_(2)):
            with pytest.raises(RuntimeError), torch.no_grad():
                write(parameter)
        assert parameter.isnan().all()
    with optimizer.gathered(model[0]):
        row = model[0].weight[1]
        known = row.detach().clone()
    train_step(model, optimizer, 0, rank)
    assert torch.equal(row, known), "a view that outlives its unit keeps what it had"


def test_reading_freed_parameters_gives_nan_and_writing_them_raises(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(read_freed)


def fill_freed(rank: int, _world_size: int) -> None:
    """Filling is the one write that torch lets through to expanded memory."""
    model = small()
    optimizer = shard(model)
    nn.init.zeros_(model[2].weight)
    with pytest.raises(StateError, match="gathered"):
        model(batch(0, 0, rank))
    assert model[2].weight.isnan().all()
    model.zero_grad()
    train_step(model, optimizer, 0, rank)
    assert held_units(optimizer) == []


def test_filling_a_freed_parameter_is_an_error_at_its_next_use(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(fill_freed)


def forget_memory(rank: int, _world_size: int) -> None:
    """No graph keeps the memory of a unit."""
    model = nn.Sequential(*[Block() for _ in range(3)])
    optimizer = shard(model)
    for _ in range(2):
        storages: list[Any] = []

        def note(module: nn.Linear, _arguments: Any, _output: Any, into: Any = storages) -> None:
            into.append(StorageWeakRef(module.weight.untyped_storage()))

        handles = [
            one.register_forward_hook(note, prepend=True) for one in model.modules() if isinstance(one, nn.Linear)
        ]
        loss = model(batch(0, 0, rank)).square().mean()
        assert expire(storages[:-1]), "the last may be kept for backward"
        loss.backward(retain_graph=True)
        assert expire(storages)
        loss.backward()
        optimizer.step()
        for handle in handles:
            handle.remove()


def expire(storages: list[StorageWeakRef]) -> bool:
    """Whether they do; the threads of gloo let go of memory a moment after they are done with it."""
    for _ in range(1000):
        if all(storage.expired() for storage in storages):
            return True
        dist.barrier()
    return False


def test_a_graph_keeps_no_memory_of_gathered_units(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(forget_memory)


# --- how much is whole at once, and how often it is gathered ---------------------------------------------------------


class Gathers:
    """Counts the gathers of an optimizer, their order and the most units that were there at once."""

    def __init__(self, optimizer: ShardedOptimizer) -> None:
        self.sizes: list[int] = []
        self.peak = 0
        self._optimizer = optimizer
        self._start = optimizer._collectives.start_gather
        optimizer._collectives.start_gather = self  # type: ignore[method-assign]

    def __call__(self, flat: torch.Tensor, bounds: Any) -> Any:
        self.sizes.append(flat.numel())
        self.peak = max(self.peak, len(held_units(self._optimizer)))
        return self._start(flat, bounds)

    def take(self) -> tuple[int, int]:
        """(gathers, peak) since the last time."""
        found = len(self.sizes), self.peak
        self.sizes, self.peak = [], 0
        return found


class Unbiased(nn.Linear):
    """Has a bias that it does not use, and uses its weight twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(functional.linear(x, self.weight), self.weight)


class Rerun(nn.Module):
    """Eight layers, each of them run again in backward."""

    def __init__(self, *, use_reentrant: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(8))
        self.use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = checkpoint(layer, x.requires_grad_(), use_reentrant=self.use_reentrant)
        return x


class Siamese(nn.Module):
    """All layers twice, one time after the other; and one layer many times in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(7)])
        self.again = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.layers(self.layers(x))
        for _ in range(4):
            x = self.again(x)
        return x


DEEP: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "linear": (lambda: nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(8)]), 8),
    "with unused parameters": (lambda: nn.Sequential(*[Unbiased(WIDTH, WIDTH) for _ in range(8)]), 8),
    "frozen": (lambda: nn.Sequential(*[Adapted() for _ in range(4)]), 12),
    "all frozen but the first": (
        lambda: nn.Sequential(
            nn.Linear(WIDTH, WIDTH), *[nn.Linear(WIDTH, WIDTH).requires_grad_(requires_grad=False) for _ in range(7)]
        ),
        8,
    ),
    "all twice": (Siamese, 18),
}
"""Deep models, and how many gathers a forward takes."""


def count_gathers(rank: int, _world_size: int) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for name, (make, _) in DEEP.items():
        model = make()
        optimizer = shard(model)
        gathers = Gathers(optimizer)
        found[name] = []
        for step in range(3):
            train_step(model, optimizer, step, rank)
            found[name].append(gathers.take())
            with torch.no_grad():
                model.eval()(batch(step, 1, rank))
                model.train()
            found[name].append(gathers.take())
            assert held_units(optimizer) == []
    return found


def test_few_units_are_whole_at_once_and_each_is_gathered_once_a_pass(rank_pools: RankPools) -> None:
    for of_rank in rank_pools.of(2).run(count_gathers):
        for name, (_, units) in DEEP.items():
            assert all(peak <= 3 for _, peak in of_rank[name]), (name, of_rank[name])
            assert all(count == units for count, _ in of_rank[name][1::2]), (name, of_rank[name])
            assert all(count <= 2 * units for count, _ in of_rank[name][::2]), (name, of_rank[name])
        assert of_rank["linear"][-2][0] == 14, "the last stays for backward, which does not need the first"


def count_reruns(rank: int, _world_size: int) -> list[tuple[int, int]]:
    found = []
    for use_reentrant in (False, True):
        model = Rerun(use_reentrant=use_reentrant)
        optimizer = shard(model)
        gathers = Gathers(optimizer)
        for step in range(3):
            train_step(model, optimizer, step, rank)
            found.append(gathers.take())
    return found


def test_a_unit_that_is_run_again_in_backward_stays_for_it(rank_pools: RankPools) -> None:
    for of_rank in rank_pools.of(2).run(count_reruns):
        assert all(count <= 16 and peak <= 3 for count, peak in of_rank), of_rank


class Wayward(nn.Module):
    """Goes another way in every forward."""

    def __init__(self) -> None:
        super().__init__()
        self.ways = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(5))
        self.turn = 0

    def forward(self, x: torch.Tensor) -> Any:
        self.turn += 1
        for place in ([0, 1, 2, 3], [0, 3, 1], [4, 0, 1, 2], [0, 1, 2, 3])[self.turn % 4]:
            x = self.ways[place](x)
        return x


def go_astray(rank: int, world_size: int) -> None:
    torch.manual_seed(5)
    wanted = unsharded(make_wayward, torch.optim.AdamW, OPTIONS, Plan((None,) * 6), world_size, losses=wayward_losses)
    model = make_wayward()
    optimizer = shard(model)
    gathers = Gathers(optimizer)
    outcome = sharded(model, optimizer, Plan((None,) * 6), rank, losses=wayward_losses)
    outcome.gradients.clear()
    assert differences(outcome, wanted) == []
    assert held_units(optimizer) == []
    assert gathers.peak <= 5  # gathered() of the whole model, at the end
    with torch.no_grad():
        for _ in range(5):
            model(batch(0, 0, rank))
            assert held_units(optimizer) == []


def make_wayward() -> Any:
    torch.manual_seed(3)
    return Wayward()


def wayward_losses(model: Any, step: int, micro_batch: int, rank: int, count: int) -> list[torch.Tensor]:
    model.turn = step  # the same way for every rank of the oracle
    return unit_models.losses(model, step, micro_batch, rank, count)


def test_a_wrong_guess_of_the_next_unit_does_no_harm_and_leaves_nothing(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(go_astray)


def step_after_guess(rank: int, _world_size: int) -> None:
    """A unit that was sent for before a step is not the one after it."""
    model = make_wayward()
    optimizer = shard(model)
    for turn in (1, 0, 0, 2, 0, 1):
        optimizer.zero_grad()
        model.turn = turn
        loss = model(batch(turn, 0, rank)).square().mean()
        loss.backward()
        with torch.no_grad():
            model.turn = turn
            model.ways[0](batch(0, 0, rank))
        optimizer.step()
        state = model.state_dict()
        with optimizer.gathered(model):
            assert all(torch.equal(state[name], one) for name, one in model.named_parameters())


def test_what_was_gathered_ahead_of_a_step_is_not_used_after_it(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(step_after_guess)


# --- exceptions ------------------------------------------------------------------------------------------------------


class Failing(torch.autograd.Function):
    """Raises in forward or backward, on demand."""

    where = ""

    @staticmethod
    def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
        if Failing.where == "forward":
            raise ValueError("forward")
        return x * 1

    @staticmethod
    def backward(_ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        if Failing.where == "backward":
            raise ValueError("backward")
        return gradients[0]


class Breakable(nn.Module):
    """Fails in the middle."""

    def __init__(self, *, is_checkpointed: bool) -> None:
        super().__init__()
        self.first = Block()
        self.middle = BreakableBlock()
        self.last = Block()
        self.is_checkpointed = is_checkpointed

    def forward(self, x: torch.Tensor) -> Any:
        x = self.first(x)
        x = checkpoint(self.middle, x, use_reentrant=False) if self.is_checkpointed else self.middle(x)
        return self.last(x)


class BreakableBlock(Block):
    def forward(self, x: torch.Tensor) -> Any:
        return self.down(Failing.apply(self.up(x)))  # type: ignore[no-untyped-call]


def make_breakable(*, is_checkpointed: bool) -> nn.Module:
    torch.manual_seed(3)
    return Breakable(is_checkpointed=is_checkpointed)


def fail_and_go_on(rank: int, world_size: int) -> list[str]:
    told = []
    for is_checkpointed in (False, True):
        make = partial(make_breakable, is_checkpointed=is_checkpointed)
        wanted = unsharded(make, torch.optim.AdamW, OPTIONS, Plan(), world_size, losses=unit_models.losses)
        for stage in (1, 2, 3):
            for clears in (True, False):
                model = make()
                optimizer = shard(model, stage)
                losses = partial(losses_after_failures, optimizer=optimizer, clears=clears)
                found = differences(sharded(model, optimizer, Plan(), rank, losses=losses), wanted)
                if stage == 3 and held_units(optimizer):
                    found.append(f"{held_units(optimizer)} are still there")
                if found:
                    told.append(f"stage {stage}, clears {clears}, checkpointed {is_checkpointed}: {'; '.join(found)}")
    return told


def losses_after_failures(
    model: nn.Module,
    step: int,
    micro_batch: int,
    rank: int,
    count: int,
    *,
    optimizer: ShardedOptimizer,
    clears: bool,
) -> list[torch.Tensor]:
    """A forward and a backward that raise come first. `clears` at once, or only after another forward."""
    Failing.where = "forward"
    with pytest.raises(ValueError, match="forward"):
        model(batch(step, 8, rank))
    Failing.where = "backward"
    loss = model(batch(step, 9, rank)).square().mean()
    with pytest.raises(ValueError, match="backward"):
        loss.backward()
    Failing.where = ""
    with pytest.raises(StateError, match="zero_grad"):
        optimizer.step()
    if clears:
        optimizer.zero_grad()
    else:
        with torch.no_grad():
            model(batch(step, 9, rank))
        optimizer.zero_grad()
    return unit_models.losses(model, step, micro_batch, rank, count)


def test_training_goes_on_after_forwards_and_backwards_that_raised(rank_pools: RankPools) -> None:
    assert rank_pools.of(2).run(fail_and_go_on) == [[], []]


def fail_in_hooks(rank: int, _world_size: int) -> None:
    """Hooks of others that raise, before ours are called or after."""
    model = small()
    optimizer = shard(model)
    inner = model[2]

    def fail(*_: Any) -> None:
        raise ValueError("hook")

    for place in (
        lambda: inner.register_forward_pre_hook(fail, prepend=True),
        lambda: inner.register_forward_pre_hook(fail),
        lambda: inner.register_forward_hook(fail, prepend=True),
        lambda: inner.register_forward_hook(fail),
    ):
        handle = place()  # type: ignore[no-untyped-call]
        with pytest.raises(ValueError, match="hook"):
            model(batch(0, 0, rank))
        handle.remove()
        train_step(model, optimizer, 0, rank)
        assert held_units(optimizer) == []
    with pytest.raises(ValueError, match="inside"), optimizer.gathered(model):
        raise ValueError("inside")
    assert held_units(optimizer) == []


def test_hooks_that_raise_leave_no_unit_whole(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(fail_in_hooks)


def spoil_activations(rank: int, _world_size: int) -> None:
    """What autograd would say of values that were written after it saved them, it says here too."""
    model = small()
    optimizer = shard(model)
    x = batch(0, 0, rank)
    loss = model(x).square().mean()
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    optimizer.zero_grad()
    train_step(model, optimizer, 0, rank)
    loss = model(batch(0, 0, rank)).square().mean()
    with optimizer.gathered(model), torch.no_grad():
        model[3].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    optimizer.zero_grad()
    train_step(model, optimizer, 0, rank)
    loss = model(batch(0, 0, rank)).square().mean()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_writing_what_backward_needs_is_an_error(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(spoil_activations)


def use_inside(rank: int, world_size: int) -> None:
    """Training, failure and a step inside of gathered()."""
    wanted = unsharded(small, torch.optim.AdamW, OPTIONS, Plan(), world_size, losses=unit_models.losses)
    model = small()
    optimizer = shard(model)
    with optimizer.gathered(model[2]):
        Failing.where = "backward"
        loss = Failing.apply(model(batch(9, 0, rank))).sum()  # type: ignore[no-untyped-call]
        with pytest.raises(ValueError, match="backward"):
            loss.backward()
        Failing.where = ""
        outcome = sharded(model, optimizer, Plan(), rank, losses=unit_models.losses)
        assert not model[2].weight.isnan().any()
        known = model[2].weight.detach().clone()
    assert differences(outcome, wanted) == []
    assert torch.equal(model.state_dict()["2.weight"], known)
    assert held_units(optimizer) == []


def test_training_inside_gathered_is_as_outside(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(use_inside)


def interrupt(rank: int, _world_size: int) -> None:
    """What is not an Exception calls no hooks."""
    model = small()
    optimizer = shard(model)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    handle = model[2].register_forward_pre_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        model(batch(0, 0, rank))
    handle.remove()
    train_step(model, optimizer, 0, rank)
    assert held_units(optimizer) == []
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_an_interrupted_forward_leaves_nothing_behind(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(interrupt)


def infer(rank: int, _world_size: int) -> None:
    model = small()
    optimizer = shard(model)
    train_step(model, optimizer, 0, rank)
    with torch.inference_mode():
        first = model(batch(0, 0, rank))
        with optimizer.gathered(model):
            assert torch.equal(model(batch(0, 0, rank)), first)
    train_step(model, optimizer, 1, rank)
    with torch.no_grad():
        assert not torch.equal(model(batch(0, 0, rank)), first)


def test_inference_mode_between_steps_is_as_no_grad(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(infer)


# --- copies, moves, replacements -------------------------------------------------------------------------------------


def copy_models(rank: int, _world_size: int) -> None:
    for stage in (1, 2, 3):
        model = small()
        optimizer = shard(model, stage)
        train_step(model, optimizer, 0, rank)
        if stage == 3:
            with pytest.raises(ConfigurationError, match="gathered"):
                copy.deepcopy(model)
        with optimizer.gathered(model):
            other = copy.deepcopy(model)
            known = model(batch(0, 0, 0))
        if rank == 0:  # alone: a copy sends nothing
            assert torch.equal(other(batch(0, 0, 0)), known)
            train_step(other, torch.optim.SGD(other.parameters(), lr=0.1), 0, 0)
            other.load_state_dict(other.state_dict())
            other.to(torch.bfloat16)
        train_step(model, optimizer, 1, rank)


def test_a_copy_of_the_model_is_a_model_of_its_own(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(copy_models)


def move_models(rank: int, _world_size: int) -> None:
    for stage in (1, 2, 3):
        for move in (
            lambda model: model.to(torch.bfloat16),
            lambda model: model.double(),
            lambda model: setattr(model[2].weight, "data", torch.ones(8, 8)),
        ):
            for trains_first in (False, True):
                model = small()
                optimizer = shard(model, stage)
                if trains_first:
                    train_step(model, optimizer, 0, rank)
                move(model)
                with pytest.raises(StateError, match=r"weight|bias"):
                    model(batch(0, 0, rank))
                with pytest.raises(StateError, match=r"weight|bias"):
                    optimizer.step()
        model = small()
        optimizer = shard(model, stage)
        model[2].weight = nn.Parameter(torch.ones(8, 8))
        model(batch(0, 0, rank)).square().mean().backward()
        with pytest.raises(StateError, match=r"2\.weight"):
            optimizer.step()
        model = small()
        shard(model, stage)
        model.to(torch.float32).to("cpu")  # changes nothing
        model(batch(0, 0, rank))


def test_models_that_are_moved_cast_or_patched_later_are_errors(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(move_models)


# --- ranks that go other ways ----------------------------------------------------------------------------------------


def part_ways(rank: int, _world_size: int) -> None:
    """Units of one size: what is gathered is made of parts of both."""
    model = make_wayward()
    optimizer = shard(model)
    model.turn = 1
    train_step(model, optimizer, 0, rank)
    with torch.no_grad():
        model.ways[rank](batch(0, 0, rank))
    model.turn = 1
    loss = model(batch(0, 0, rank)).square().mean()
    loss.backward()
    with pytest.raises(StateError, match="rank 0"):
        optimizer.step()
    optimizer.zero_grad()
    model.turn = 1
    train_step(model, optimizer, 1, rank)


def test_fault_21_ranks_that_gather_other_units_are_told_before_the_step(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(part_ways)
