from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from shardkeep.errors import ConfigurationError, LoadError, MissingNames
from shardkeep.pytorch.capture import TrainingState
from shardkeep.zero import ShardedOptimizer
from tests.unit.pytorch.memory_checkpoint import MemoryCheckpoint

BF16 = torch.bfloat16


def state_of(model: nn.Module, inner: Any = torch.optim.AdamW, **options: Any) -> tuple[Any, TrainingState]:
    optimizer = ShardedOptimizer(model, inner, **{"lr": 0.125, "persistent_elements": 0, **options})
    return optimizer, TrainingState({"model": model, "optimizer": optimizer})


def step(model: nn.Module, optimizer: torch.optim.Optimizer, *, times: int = 1) -> None:
    for _ in range(times):
        optimizer.zero_grad()
        model(torch.ones(1, 3, dtype=next(model.parameters()).dtype)).float().sum().backward()
        optimizer.step()


def names(checkpoint: MemoryCheckpoint, end: str) -> list[str]:
    return sorted(tensor.name for tensor in checkpoint.tensors() if tensor.name.endswith(end))


def load(state: TrainingState, checkpoint: MemoryCheckpoint, **leniency: Any) -> list[str]:
    return state.restore(checkpoint, rank=0, world_size=1, **leniency).notes


def test_masters_are_saved_only_where_they_are_not_the_parameters() -> None:
    for dtype, expected in ((torch.float32, 0), (BF16, 2)):
        model = nn.Linear(3, 2).to(dtype)
        optimizer, state = state_of(model, offload="cpu")
        step(model, optimizer)

        assert len(names(MemoryCheckpoint.of(state.capture()), "master_param")) == expected


def test_E21_state_is_whole_with_gradients_still_there() -> None:
    model = nn.Linear(3, 1, bias=False)
    optimizer, state = state_of(model, torch.optim.Adam, stage=1)
    step(model, optimizer)
    assert model.weight.grad is not None

    saved = MemoryCheckpoint.of(state.capture())

    keys = {name.rsplit(".", 1)[1] for name in names(saved, "") if name.startswith("optimizer.")}
    assert keys == {"step", "exp_avg", "exp_avg_sq"}


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_an_earlier_state_replaces_the_present_one_also_where_there_was_none(stage: int) -> None:
    for inner in (torch.optim.AdamW, torch.optim.Adagrad, torch.optim.SGD):
        model = nn.Linear(3, 2).to(BF16)
        optimizer, state = state_of(model, inner, stage=stage)
        fresh = MemoryCheckpoint.of(state.capture())
        step(model, optimizer)
        first = optimizer.state_dict()
        step(model, optimizer)

        load(state, fresh)
        step(model, optimizer)

        again = optimizer.state_dict()
        assert repr(again) == repr(first)


def test_a_model_that_a_plain_bf16_optimizer_trained_goes_on_with_masters() -> None:
    model = nn.Linear(3, 2).to(BF16)
    plain = torch.optim.AdamW(model.parameters(), lr=0.125)
    step(model, plain, times=2)
    saved = MemoryCheckpoint.of(TrainingState({"model": model, "optimizer": plain}).capture())
    target = nn.Linear(3, 2).to(BF16)
    optimizer, state = state_of(target)

    assert load(state, saved) == []

    (part,) = optimizer.state_parts(target.weight)
    assert torch.equal(part.master, model.weight.detach().float().view(-1))
    assert part.tensors["exp_avg"].dtype == torch.float32
    assert torch.equal(part.tensors["exp_avg"], plain.state[model.weight]["exp_avg"].float().view(-1))
    step(target, optimizer)


def test_a_parameter_that_was_not_saved_is_named_and_nothing_is_loaded() -> None:
    model = nn.Linear(3, 2)
    optimizer, state = state_of(model, params=[model.weight])
    step(model, optimizer)
    saved = MemoryCheckpoint.of(state.capture())
    target = nn.Linear(3, 2)
    _, other = state_of(target)
    before = target.weight.clone()

    with pytest.raises(MissingNames, match=r"optimizer\.state\.model\.bias"):
        load(other, saved)

    assert torch.equal(target.weight, before)


def test_resuming_with_parameters_gathered_is_refused() -> None:
    model = nn.Linear(3, 2)
    optimizer, state = state_of(model, stage=3)
    saved = MemoryCheckpoint.of(state.capture())

    with optimizer.gathered(), pytest.raises(LoadError, match="gathered"):
        load(state, saved)


def test_the_groups_stay_the_same_objects_so_that_schedulers_go_on() -> None:
    model = nn.Linear(3, 2)
    optimizer, state = state_of(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    step(model, optimizer)
    scheduler.step()
    saved = MemoryCheckpoint.of(state.capture())
    step(model, optimizer)
    scheduler.step()
    group = optimizer.param_groups[0]

    load(state, saved)

    assert optimizer.param_groups[0] is group
    assert (group["lr"], group["initial_lr"]) == (0.0625, 0.125)


class Remembers(torch.optim.SGD):
    """Keeps past gradients in a list, which cannot be cut like the parameter."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        for group in self.param_groups:
            for one in group["params"]:
                self.state[one].setdefault("past", []).append(one.grad.clone())


def test_E25_arrays_inside_other_state_need_a_parameter_with_one_owner() -> None:
    model = nn.Linear(3, 2)
    optimizer, _ = state_of(model, Remembers)
    with pytest.raises(ConfigurationError, match='layout="whole"'):
        step(model, optimizer)

    model = nn.Linear(3, 2)
    optimizer, state = state_of(model, Remembers, layout="whole")
    step(model, optimizer, times=2)
    saved = MemoryCheckpoint.of(state.capture())
    other = nn.Linear(3, 2)
    loaded, target = state_of(other, Remembers, layout="whole", stage=3)
    load(target, saved)
    step(other, loaded)

    (part,) = loaded.state_parts(other.weight)
    assert [tuple(one.shape) for one in part.values["past"]] == [(2, 3)] * 3


@pytest.mark.parametrize("inner", [torch.optim.Adafactor, torch.optim.Muon])
def test_fault_61_factors_and_matrices_go_to_a_plain_optimizer_and_back(inner: Any) -> None:
    model = nn.Linear(3, 2, bias=False)
    optimizer, state = state_of(model, inner, layout="whole", stage=3)
    step(model, optimizer, times=2)
    saved = MemoryCheckpoint.of(state.capture())
    other = nn.Linear(3, 2, bias=False)
    plain = inner(other.parameters(), lr=0.125)
    both = TrainingState({"model": other, "optimizer": plain})
    load(both, saved)
    again = MemoryCheckpoint.of(both.capture())
    step(other, plain)

    load(state, again)
    step(model, optimizer)

    assert {one.name: saved.tensor_bytes(one.name) for one in saved.tensors()} == {
        one.name: again.tensor_bytes(one.name) for one in again.tensors()
    }
    assert torch.equal(model.state_dict()["weight"], other.weight)
