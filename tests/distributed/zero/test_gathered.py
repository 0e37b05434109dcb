"""Whole parameters, read and written from outside: gathered(), state_dict() and load_state_dict(), at every stage."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from shardkeep.errors import ConfigurationError
from shardkeep.zero import ShardedOptimizer
from tests.distributed.launcher import RankPools
from tests.distributed.zero import unit_models
from tests.distributed.zero.test_unit_faults import Gathers
from tests.distributed.zero.test_units import OPTIONS, held_units, shard
from tests.distributed.zero.unit_models import WIDTH, batch

BF16 = torch.bfloat16


def small(seed: int = 3) -> Any:
    """Three units in bf16."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 3)).to(BF16)


class Reference:
    """The same training on one rank, with masters in fp32."""

    def __init__(self, model: Any, world_size: int) -> None:
        self.model = model
        self.masters = {name: one.detach().float().requires_grad_() for name, one in model.named_parameters()}
        self.optimizer = torch.optim.AdamW(self.masters.values(), **OPTIONS)
        self.world_size = world_size

    def step(self, number: int) -> None:
        """One step with the gradients of all ranks."""
        for master in self.masters.values():
            master.grad = torch.zeros_like(master)
        for rank in range(self.world_size):
            self.model.zero_grad()
            loss_of(self.model, number, rank).backward()
            for name, one in self.model.named_parameters():
                self.masters[name].grad += one.grad
        for master in self.masters.values():
            assert master.grad is not None
            master.grad /= self.world_size
        self.optimizer.step()
        with torch.no_grad():
            for name, one in self.model.named_parameters():
                one.copy_(self.masters[name])

    def take(self, *names: str) -> None:
        """The masters of these become what the parameters are."""
        with torch.no_grad():
            for name in names:
                self.masters[name].copy_(self.model.get_parameter(name))


def loss_of(model: Any, step: int, rank: int) -> torch.Tensor:
    """The loss of a rank."""
    return model(batch(step, 0, rank).to(BF16)).float().square().mean()  # type: ignore[no-any-return]


def train(model: Any, optimizer: torch.optim.Optimizer, step: int, rank: int) -> None:
    """One step of this rank."""
    optimizer.zero_grad()
    loss_of(model, step, rank).backward()
    optimizer.step()


def check_equal(state: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    """Bit for bit."""
    assert list(state) == list(wanted)
    for name, one in state.items():
        assert one.dtype == wanted[name].dtype
        assert torch.equal(one, wanted[name]), name


def write_gathered(rank: int, world_size: int) -> None:
    for stage in (1, 2, 3):
        model, reference = small(), Reference(small(), world_size)
        optimizer = shard(model, stage)
        for step in range(2):
            train(model, optimizer, step, rank)
            reference.step(step)
        with optimizer.gathered(model):  # to read changes nothing, not even the digits of masters
            check_equal(dict(model.named_parameters()), dict(reference.model.named_parameters()))
            with optimizer.gathered(model[2]):
                assert not model[2].weight.isnan().any()
            assert not model[2].weight.isnan().any(), "the outer one still holds it"
        train(model, optimizer, 2, rank)
        reference.step(2)
        for one in (model, reference.model):
            with optimizer.gathered(model), torch.no_grad(), optimizer.gathered(model[2]):
                one[2].weight.mul_(1.5).add_(0.25)
        reference.take("2.weight")
        with pytest.raises(ZeroDivisionError):
            write_and_raise(model, optimizer)
        with torch.no_grad():
            reference.model[3].bias.add_(1)
        reference.take("3.bias")
        for step in range(3, 5):
            train(model, optimizer, step, rank)
            reference.step(step)
        check_equal(model.state_dict(), reference.model.state_dict())
        if stage == 3:
            assert held_units(optimizer) == []
            assert all(one.isnan().all() for one in model.parameters())


def test_what_is_written_inside_gathered_is_trained_on_and_no_other_master_loses_digits(
    rank_pools: RankPools,
) -> None:
    rank_pools.of(2).run(write_gathered)


def write_and_raise(model: Any, optimizer: ShardedOptimizer) -> None:
    with optimizer.gathered(model[3]), torch.no_grad():
        model[3].bias.add_(1)
        raise ZeroDivisionError


def write_data(rank: int, world_size: int) -> None:
    """Writes that count as none for autograd: through .data, and under inference mode."""
    model, reference = small(), Reference(small(), world_size)
    optimizer = shard(model)
    for one in (model, reference.model):
        with optimizer.gathered(model):
            one[0].weight.data.mul_(3)
    reference.take("0.weight")
    train(model, optimizer, 0, rank)
    reference.step(0)
    check_equal(model.state_dict(), reference.model.state_dict())


def test_writes_through_data_inside_gathered_count(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(write_data)


def save_states(rank: int, world_size: int) -> None:
    for stage in (1, 2, 3):
        model, reference = small(), Reference(small(), world_size)
        optimizer = shard(model, stage)
        train(model, optimizer, 0, rank)
        reference.step(0)
        state = model.state_dict()
        check_equal(state, reference.model.state_dict())
        check_equal(model[2].state_dict(prefix="2."), reference.model[2].state_dict(prefix="2."))
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        check_equal(torch.load(file), reference.model.state_dict())
        train(model, optimizer, 1, rank)
        if stage == 3:
            check_equal(state, reference.model.state_dict())  # a copy, which training leaves alone


def test_state_dict_has_whole_values_on_every_rank(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(save_states)


def load_states(rank: int, world_size: int) -> None:
    for stage in (1, 2, 3):
        model, reference = small(), Reference(small(seed=8), world_size)
        optimizer = shard(model, stage)
        model.load_state_dict(reference.model.state_dict())
        for step in range(2):
            train(model, optimizer, step, rank)
            reference.step(step)
        part = small(seed=9)[2].state_dict()
        for one in (model, reference.model):
            one[2].load_state_dict(part)
            missing, unexpected = one.load_state_dict({"0.bias": torch.ones(8), "more": torch.ones(1)}, strict=False)
            assert len(missing) == 5
            assert unexpected == ["more"]
        reference.take("2.weight", "2.bias", "0.bias")
        for step in range(2, 4):
            train(model, optimizer, step, rank)
            reference.step(step)
        check_equal(model.state_dict(), reference.model.state_dict())


def test_fault_54_weights_loaded_after_construction_are_what_is_trained(rank_pools: RankPools) -> None:
    """Of the whole model, or of a part of it, with masters of another dtype."""
    rank_pools.of(2).run(load_states)


def load_wrongly(rank: int, _world_size: int) -> None:
    for stage in (1, 2, 3):
        model, given = small(), small(seed=8).state_dict()
        optimizer = shard(model, stage)
        with pytest.raises(RuntimeError, match="Missing key"):
            model.load_state_dict({"0.weight": given["0.weight"]})
        with pytest.raises(ConfigurationError, match="assign"):
            model.load_state_dict(given, assign=True)
        with pytest.raises(RuntimeError, match="size mismatch"):
            model.load_state_dict({**given, "0.weight": torch.ones(2, 2)})
        train(model, optimizer, 7, rank)
        if stage == 3:
            assert held_units(optimizer) == []


def test_loads_that_fail_leave_a_model_that_trains(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(load_wrongly)


def stream(rank: int, world_size: int) -> None:
    del rank, world_size
    for name in ("plain", "tied", "attention", "parameters of the root", "recurrent", "mixed dtypes", "adapted"):
        model, wanted = unit_models.make(name), unit_models.make(name).state_dict()
        optimizer = shard(model)
        gathers = Gathers(optimizer)
        with warnings.catch_warnings(action="error"):
            state = model.state_dict()
        check_equal(state, wanted)
        # those of the root are there until its children are done; a head that is tied has a bias besides
        most = 2 if name in ("tied", "parameters of the root") else 1
        assert gathers.take()[1] <= most, name
        model.load_state_dict({name: one + 1 for name, one in wanted.items()})
        assert gathers.take()[1] <= most, name
        check_equal(model.state_dict(), {name: one + 1 for name, one in wanted.items()})
        assert held_units(optimizer) == []
        kept = model.state_dict(keep_vars=True)
        assert all(kept[name] is one for name, one in model.named_parameters())


def test_state_dict_and_load_state_dict_have_one_unit_whole_at_a_time(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(stream)


def close(rank: int, world_size: int) -> None:
    """After close() the model is one that torch alone knows."""
    for stage in (1, 2, 3):
        model, reference = small(), Reference(small(), world_size)
        optimizer = shard(model, stage)
        train(model, optimizer, 0, rank)
        reference.step(0)
        optimizer.close()
        check_equal(model.state_dict(), reference.model.state_dict())
        with torch.no_grad():
            model[0].weight.zero_()
            model(batch(0, 0, rank).to(BF16))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 0, rank)
        model.to(torch.float32)


def test_a_closed_optimizer_leaves_an_ordinary_model(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(close)
