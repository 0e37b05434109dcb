from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from shardkeep.errors import MissingNames
from shardkeep.format.names import join_name
from shardkeep.pytorch.capture import TrainingState
from shardkeep.pytorch.restore import RestoreReport
from tests.unit.pytorch.memory_checkpoint import MemoryCheckpoint

State = dict[str, Any]


def saved(**items: object) -> MemoryCheckpoint:
    return MemoryCheckpoint.of(TrainingState(items).capture())


def load(checkpoint: MemoryCheckpoint, options: Any = None, **items: object) -> RestoreReport:
    return TrainingState(items).restore(checkpoint, rank=0, world_size=1, **(options or {}))


def layers(*names: str, size: int = 4) -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({name: nn.Linear(size, size, bias=False) for name in names})


def weight(model: nn.ModuleDict, name: str) -> nn.Parameter:
    return model.get_parameter(f"{name}.weight")


def train(model: nn.ModuleDict, optimizer: Optimizer, *, steps: int = 1, names: Iterable[str] = ()) -> list[float]:
    losses = []
    for step in range(steps):
        inputs = torch.full((2, 4), 0.1 * (step + 1))
        for name in tuple(names) or tuple(model):
            inputs = model[name](inputs)
        loss = inputs.square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def states(model: nn.Module, optimizer: Optimizer) -> dict[str, State]:
    return {name: dict(optimizer.state.get(parameter, {})) for name, parameter in model.named_parameters()}


def assert_equal_states(found: dict[str, State], expected: dict[str, State]) -> None:
    assert found.keys() == expected.keys()
    for name, state in expected.items():
        assert found[name].keys() == state.keys(), name
        for key, value in state.items():
            other = found[name][key]
            if isinstance(value, torch.Tensor):
                assert (other.dtype, other.shape, other.device) == (value.dtype, value.shape, value.device)
                assert torch.equal(other, value)
            else:
                assert type(other) is type(value)
                assert other == value


OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "Adam tensor lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.01),
}


@pytest.mark.parametrize("kind", list(OPTIMIZERS))
@pytest.mark.parametrize("stepped", [False, True], ids=["fresh", "stepped"])
def test_a_loaded_optimizer_continues_bit_equal(kind: str, stepped: bool) -> None:
    model = layers("a", "b")
    optimizer = OPTIMIZERS[kind](model.parameters())
    train(model, optimizer, steps=3)
    checkpoint = saved(model=model, optimizer=optimizer)
    resumed = layers("a", "b")
    again = OPTIMIZERS[kind](resumed.parameters())
    if stepped:
        train(resumed, again, steps=1)
    report = load(checkpoint, model=resumed, optimizer=again)
    assert report.notes == []
    assert_equal_states(states(resumed, again), states(model, optimizer))
    assert train(resumed, again, steps=4) == train(model, optimizer, steps=4)


def test_lbfgs_keeps_its_lists_of_flat_tensors() -> None:
    def run(optimizer: Any, model: nn.ModuleDict, steps: int) -> list[float]:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = (model["a"](torch.ones(2, 4)) - 1).square().sum()
            loss.backward()
            return loss

        return [float(optimizer.step(closure).detach()) for _ in range(steps)]

    model, resumed = layers("a"), layers("a")
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, lr=0.1)
    run(optimizer, model, 2)
    again = torch.optim.LBFGS(resumed.parameters(), max_iter=3, lr=0.1)
    load(saved(model=model, optimizer=optimizer), model=resumed, optimizer=again)
    assert run(again, resumed, 3) == run(optimizer, model, 3)


def test_E22_moments_of_a_layer_frozen_at_load_return_and_never_stepped_ones_stay_so() -> None:
    model = layers("0", "1")
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, names=["0"])
    model["0"].requires_grad_(False)
    checkpoint = saved(model=model, optimizer=optimizer)
    resumed = layers("0", "1")
    resumed["0"].requires_grad_(False)
    again = torch.optim.AdamW(resumed.parameters())
    load(checkpoint, model=resumed, optimizer=again)
    resumed["0"].requires_grad_(True)
    assert_equal_states(states(resumed, again), states(model, optimizer))
    assert states(resumed, again)["1.weight"] == {}


def test_E22_state_of_a_parameter_outside_the_optimizer_is_kept_for_the_next_save_and_given_back() -> None:
    model = layers("0", "1")
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    checkpoint = saved(model=model, optimizer=optimizer)
    resumed = layers("0", "1")
    again = torch.optim.AdamW(resumed["1"].parameters())
    state = TrainingState({"model": resumed, "optimizer": again})
    state.restore(checkpoint, rank=0, world_size=1)
    second = MemoryCheckpoint.of(state.capture())
    for key in ("step", "exp_avg", "exp_avg_sq"):
        name = join_name(("optimizer", "state", "model", "0", "weight", key))
        assert second.tensor_bytes(name) == checkpoint.tensor_bytes(name)
    again.add_param_group({"params": list(resumed["0"].parameters())})
    train(resumed, again)
    train(model, optimizer)
    assert_equal_states(states(resumed, again), states(model, optimizer))


def test_E22_nested_state_is_kept_and_given_back_too() -> None:
    model, resumed = layers("0", "1"), layers("0", "1")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer)
    optimizer.state[weight(model, "0")]["history"] = [torch.ones(2), {3: torch.zeros(1)}]
    optimizer.state[weight(model, "0")]["count"] = 5
    again = torch.optim.SGD(resumed["1"].parameters(), lr=0.1, momentum=0.9)
    state = TrainingState({"model": resumed, "optimizer": again})
    state.restore(saved(model=model, optimizer=optimizer), rank=0, world_size=1)
    second = MemoryCheckpoint.of(state.capture())
    state.restore(second, rank=0, world_size=1)
    again.add_param_group({"params": list(resumed["0"].parameters())})
    train(resumed, again)
    found = again.state[weight(resumed, "0")]
    assert found["count"] == 5
    assert found["history"][0].tolist() == [1, 1]
    assert found["history"][1][3].tolist() == [0]


def test_rolling_back_to_before_the_first_step_takes_the_state_away() -> None:
    model = layers("a")
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoint = saved(model=model, optimizer=optimizer)
    train(model, optimizer)
    load(checkpoint, model=model, optimizer=optimizer)
    assert states(model, optimizer) == {"a.weight": {}}


def test_E24_an_option_the_checkpoint_lacks_takes_the_optimizers_own_with_a_logged_note(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "shardkeep")
    model = layers("a")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    train(model, optimizer)
    del optimizer.param_groups[0]["maximize"]
    checkpoint = saved(model=model, optimizer=optimizer)
    again = torch.optim.AdamW(model.parameters(), lr=0.1, maximize=True)
    report = load(checkpoint, model=model, optimizer=again)
    assert again.param_groups[0]["maximize"] is True
    assert again.param_groups[0]["lr"] == 0.5
    assert "no option 'maximize'" in caplog.text
    assert report.notes == []


class Quantised(Optimizer):
    """State per parameter: int8 codes, fp32 scales of another shape, a python int."""

    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["codes"] = torch.zeros(parameter.numel() + 3, dtype=torch.int8)
                    state["scale"] = torch.ones(2)
                    state["count"] = 0
                state["count"] += 1
                codes = state["codes"][: parameter.numel()].float().view_as(parameter) * state["scale"][0]
                moment = 0.9 * codes + parameter.grad
                state["scale"] = torch.full((2,), float(moment.abs().max()) / 127 + 1e-12)
                state["codes"][: parameter.numel()] = (moment / state["scale"][0]).round().to(torch.int8).flatten()
                parameter.sub_(group["lr"] * moment)


def test_E25_quantised_state_is_stored_whole_and_continues_bit_equal() -> None:
    model, resumed = layers("a", "b"), layers("a", "b")
    optimizer, again = Quantised(model.parameters()), Quantised(resumed.parameters())
    train(model, optimizer, steps=3)
    load(saved(model=model, optimizer=optimizer), model=resumed, optimizer=again)
    assert_equal_states(states(resumed, again), states(model, optimizer))
    assert train(resumed, again, steps=20) == train(model, optimizer, steps=20)


def test_E28_state_follows_names_and_not_the_order_of_parameters() -> None:
    model = layers("a", "b")
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, steps=2)
    swapped = layers("b", "a")
    again = torch.optim.Adam(swapped.parameters())
    load(saved(model=model, optimizer=optimizer), model=swapped, optimizer=again)
    found = states(swapped, again)
    assert_equal_states({name: found[name] for name in ("a.weight", "b.weight")}, states(model, optimizer))


def test_E37_weight_and_moments_are_three_buffers_with_their_own_values() -> None:
    model = layers("a")
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    first = weight(model, "a")
    with torch.no_grad():
        first.fill_(1)
    optimizer.state[first]["exp_avg"].fill_(2)
    optimizer.state[first]["exp_avg_sq"].fill_(3)
    resumed = layers("a")
    again = torch.optim.Adam(resumed.parameters())
    load(saved(model=model, optimizer=optimizer), model=resumed, optimizer=again)
    live = weight(resumed, "a")
    buffers = [live.detach(), again.state[live]["exp_avg"], again.state[live]["exp_avg_sq"]]
    assert [set(buffer.flatten().tolist()) for buffer in buffers] == [{1.0}, {2.0}, {3.0}]
    assert len({buffer.untyped_storage().data_ptr() for buffer in buffers}) == 3


def test_E38_mixed_dtypes_in_one_group_keep_their_state() -> None:
    def model() -> nn.Module:
        made = nn.Module()
        for name, dtype in (("a", torch.float32), ("b", torch.bfloat16), ("c", torch.float32)):
            made.register_parameter(name, nn.Parameter(torch.ones(7, dtype=dtype)))
        return made

    first, resumed = model(), model()
    optimizer, again = torch.optim.Adam(first.parameters()), torch.optim.Adam(resumed.parameters())
    for index, parameter in enumerate(first.parameters()):
        parameter.grad = torch.full_like(parameter, index + 1.0)
    optimizer.step()
    load(saved(model=first, optimizer=optimizer), model=resumed, optimizer=again)
    assert_equal_states(states(resumed, again), states(first, optimizer))


@pytest.mark.parametrize("existing", [False, True], ids=["fresh", "existing"])
def test_E45_fp32_moments_of_a_half_precision_parameter_stay_fp32(existing: bool) -> None:
    def half() -> tuple[nn.ModuleDict, Optimizer]:
        model = layers("a").half()
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    model, optimizer = half()
    moment = torch.full((4, 4), 1e-9)
    moment[0, 0] = 70000.0
    optimizer.state[weight(model, "a")] = {"exp_avg": moment}
    resumed, again = half()
    if existing:
        again.state[weight(resumed, "a")] = {"exp_avg": torch.zeros(4, 4, dtype=torch.float16)}
    load(saved(model=model, optimizer=optimizer), model=resumed, optimizer=again)
    assert_equal_states(states(resumed, again), states(model, optimizer))


def test_E103_a_float64_step_stays_float64() -> None:
    model = layers("a")
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    optimizer.state[weight(model, "a")]["step"] = torch.tensor(2**24 + 1, dtype=torch.float64)
    checkpoint = saved(model=model, optimizer=optimizer)
    for stepped in (False, True):
        resumed = layers("a")
        again = torch.optim.Adam(resumed.parameters())
        if stepped:
            train(resumed, again)
        load(checkpoint, model=resumed, optimizer=again)
        step = again.state[weight(resumed, "a")]["step"]
        assert (step.item(), step.dtype, step.shape) == (16777217.0, torch.float64, ())


@pytest.mark.parametrize(("dtype", "limit"), [(torch.bfloat16, 256.0), (torch.float16, 2048.0)])
def test_E102_a_low_precision_counter_keeps_value_and_dtype(dtype: torch.dtype, limit: float) -> None:
    model = layers("a")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[weight(model, "a")] = {"step": torch.tensor(limit, dtype=dtype)}
    again = torch.optim.SGD(model.parameters(), lr=0.1)
    load(saved(model=model, optimizer=optimizer), model=model, optimizer=again)
    step = again.state[weight(model, "a")]["step"]
    assert (step.item(), step.dtype) == (limit, dtype)


def test_E100_a_parameter_of_one_element_keeps_its_shape() -> None:
    def one(value: float) -> tuple[nn.Module, Optimizer]:
        model = nn.Module()
        model.register_parameter("w", nn.Parameter(torch.full((1,), value)))
        return model, torch.optim.Adam(model.parameters())

    model, optimizer = one(3.0)
    model.get_parameter("w").grad = torch.ones(1)
    optimizer.step()
    resumed, again = one(0.0)
    load(saved(model=model, optimizer=optimizer), model=resumed, optimizer=again)
    assert torch.equal(resumed.get_parameter("w"), model.get_parameter("w"))
    assert_equal_states(states(resumed, again), states(model, optimizer))


def test_group_dicts_and_tensor_options_stay_the_same_objects() -> None:
    model = layers("a")
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.5))
    train(model, optimizer)
    checkpoint = saved(model=model, optimizer=optimizer)
    again = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1))
    group, rate = again.param_groups[0], again.param_groups[0]["lr"]
    load(checkpoint, model=model, optimizer=again)
    assert again.param_groups[0] is group
    assert group["lr"] is rate
    assert rate.item() == 0.5
    scalar = torch.optim.Adam(model.parameters(), lr=0.1)
    load(saved(model=model, optimizer=torch.optim.Adam(model.parameters(), lr=0.7)), model=model, optimizer=scalar)
    assert scalar.param_groups[0]["lr"] == 0.7


def test_groups_match_by_name_and_a_regrouped_parameter_keeps_what_is_unclear() -> None:
    model = layers("a", "b")
    apart = [{"params": [weight(model, "a")], "lr": 0.5}, {"params": [weight(model, "b")], "lr": 0.25}]
    checkpoint = saved(model=model, optimizer=torch.optim.Adam(apart, weight_decay=0.1))
    swapped = torch.optim.Adam([{"params": [weight(model, "b")]}, {"params": [weight(model, "a")]}])
    load(checkpoint, model=model, optimizer=swapped)
    assert [group["lr"] for group in swapped.param_groups] == [0.25, 0.5]
    joined = torch.optim.Adam(model.parameters(), lr=0.9)
    report = load(checkpoint, model=model, optimizer=joined)
    assert joined.param_groups[0]["lr"] == 0.9
    assert joined.param_groups[0]["weight_decay"] == 0.1
    assert len(report.notes) == 1
    assert "keeps its own lr" in report.notes[0]


def test_how_a_step_is_computed_stays_as_chosen_here() -> None:
    model = layers("a")
    checkpoint = saved(model=model, optimizer=torch.optim.Adam(model.parameters(), foreach=True))
    again = torch.optim.Adam(model.parameters(), foreach=False)
    report = load(checkpoint, model=model, optimizer=again)
    assert again.param_groups[0]["foreach"] is False
    assert "foreach" in report.notes[0]


def test_a_scheduler_keeps_working_on_the_loaded_groups() -> None:
    def build() -> tuple[nn.ModuleDict, Optimizer, torch.optim.lr_scheduler.StepLR]:
        model = layers("a")
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)

    model, optimizer, scheduler = build()
    for _ in range(3):
        train(model, optimizer)
        scheduler.step()
    checkpoint = saved(model=model, optimizer=optimizer, scheduler=scheduler)
    resumed, again, resumed_scheduler = build()
    load(checkpoint, model=resumed, optimizer=again, scheduler=resumed_scheduler)
    for each, own, its_scheduler in ((model, optimizer, scheduler), (resumed, again, resumed_scheduler)):
        train(each, own)
        its_scheduler.step()
    assert again.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    assert again.param_groups[0]["initial_lr"] == 1.0
    assert resumed_scheduler.get_last_lr() == scheduler.get_last_lr()


def test_two_optimizers_keep_apart() -> None:
    model = layers("a", "b")

    def build(made: nn.ModuleDict) -> tuple[Optimizer, Optimizer]:
        return torch.optim.Adam(made["a"].parameters()), torch.optim.SGD(made["b"].parameters(), lr=0.1, momentum=0.9)

    first, second = build(model)
    train(model, first)
    second.step()
    resumed = layers("a", "b")
    again, other = build(resumed)
    load(saved(model=model, first=first, second=second), model=resumed, first=again, second=other)
    assert_equal_states(states(resumed, again), states(model, first))
    assert_equal_states(states(resumed, other), states(model, second))


def test_a_new_parameter_is_missing_unless_allowed_and_then_starts_fresh() -> None:
    model = layers("a")
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    checkpoint = saved(model=model, optimizer=optimizer)
    grown = layers("a", "b")
    again = torch.optim.Adam(grown.parameters())
    with pytest.raises(MissingNames) as error:
        load(checkpoint, model=grown, optimizer=again)
    assert error.value.missing == ("model.b.weight", "optimizer.state.model.b.weight")
    assert states(grown, again)["a.weight"] == {}
    load(checkpoint, {"allow_missing": ["model.b", "optimizer.state.model.b"]}, model=grown, optimizer=again)
    assert states(grown, again)["b.weight"] == {}
    assert set(states(grown, again)["a.weight"]) == {"step", "exp_avg", "exp_avg_sq"}


def test_state_of_a_parameter_no_module_has_is_unexpected() -> None:
    model = layers("a", "b")
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    small = layers("a")
    with pytest.raises(MissingNames) as error:
        load(saved(model=model, optimizer=optimizer), model=small, optimizer=torch.optim.Adam(small.parameters()))
    assert "optimizer.state.model.b.weight.exp_avg" in error.value.unexpected


def test_state_of_tied_parameters_is_found_under_either_name() -> None:
    def tied(first: str, second: str) -> nn.ModuleDict:
        model = layers(first, second)
        model[second].weight = model[first].weight
        return model

    model = tied("a", "b")
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    turned = tied("b", "a")
    again = torch.optim.Adam(turned.parameters())
    load(saved(model=model, optimizer=optimizer), model=turned, optimizer=again)
    assert_equal_states({"x": again.state[weight(turned, "a")]}, {"x": optimizer.state[weight(model, "a")]})


class OwnState(torch.optim.SGD):
    """An optimizer with a state_dict of its own making."""

    def state_dict(self) -> State:
        return {"inner": super().state_dict(), "shadow": [group["lr"] for group in self.param_groups]}

    def load_state_dict(self, state_dict: State) -> None:
        super().load_state_dict(state_dict["inner"])
        self.shadow = state_dict["shadow"]


def test_an_optimizer_with_its_own_state_dict_is_kept_as_it_gives_it() -> None:
    model, resumed = layers("a"), layers("a")
    optimizer, again = (OwnState(m.parameters(), lr=0.1, momentum=0.9) for m in (model, resumed))
    train(model, optimizer, steps=2)
    load(saved(model=model, optimizer=optimizer), model=resumed, optimizer=again)
    assert again.shadow == [0.1]
    assert train(resumed, again, steps=2) == train(model, optimizer, steps=2)


def test_state_that_belongs_to_no_parameter_is_kept() -> None:
    model, resumed = layers("a"), layers("a")
    optimizer, again = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, resumed))
    train(model, optimizer)
    optimizer.state["rounds"] = {"count": 3, "norm": torch.tensor(2.5)}  # type: ignore[index]
    load(saved(model=model, optimizer=optimizer), model=resumed, optimizer=again)
    shared: Any = again.state["rounds"]  # type: ignore[index]
    assert shared["count"] == 3
    assert shared["norm"].item() == 2.5
