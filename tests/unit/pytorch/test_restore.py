from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from shardkeep.errors import DtypeMismatch, LoadError, MissingNames, ShapeMismatch, StateError
from shardkeep.pytorch import reading
from shardkeep.pytorch.capture import TrainingState
from shardkeep.pytorch.marks import PerRank, Sharded, mark
from shardkeep.pytorch.restore import RestoreReport
from shardkeep.pytorch.tensors import byte_view, empty_like_stored
from tests.unit.pytorch.memory_checkpoint import MemoryCheckpoint


def saved(**items: object) -> MemoryCheckpoint:
    return MemoryCheckpoint.of(TrainingState(items).capture())


def load(
    checkpoint: MemoryCheckpoint, *, rank: int = 0, world_size: int = 1, options: Any = None, **items: object
) -> RestoreReport:
    return TrainingState(items).restore(checkpoint, rank=rank, world_size=world_size, **(options or {}))


def filled_linear(value: float, **options: Any) -> nn.Linear:
    linear = nn.Linear(3, 2, **options)
    with torch.no_grad():
        linear.weight.fill_(value)
    return linear


# --- modules ---------------------------------------------------------------------------------------------------------


def test_a_module_is_loaded_in_place_and_read_straight_into_its_memory() -> None:
    checkpoint = saved(model=filled_linear(5))
    model = filled_linear(0)
    weight, address = model.weight, model.weight.data_ptr()
    report = load(checkpoint, model=model)
    assert model.weight is weight
    assert weight.data_ptr() == address
    assert bool(torch.all(weight == 5))
    assert weight.requires_grad
    assert report == RestoreReport(tensors=2, read_bytes=32)
    weight_out = next(request.out for request in checkpoint.requests if request.name == "model.weight")
    assert torch.frombuffer(weight_out, dtype=torch.float32).data_ptr() == address


def wrapped(model: nn.Module, how: str) -> nn.Module:
    if how == "compiled":
        return torch.compile(model, backend="eager")  # type: ignore[return-value]
    return checkpoint_wrapper(model) if how == "checkpointed" else model


def test_E135_every_hop_between_wrapped_and_plain_works() -> None:
    checkpoint = saved(model=filled_linear(1))
    for how in ("compiled", "plain", "checkpointed", "compiled", "plain"):
        inner = filled_linear(0)
        load(checkpoint, model=wrapped(inner, how))
        assert bool(torch.all(inner.weight == 1))
        checkpoint = saved(model=wrapped(inner, how))


def test_E136_saving_the_wrapper_and_loading_the_inner_module_works() -> None:
    checkpoint = saved(model=wrapped(filled_linear(3), "compiled"))
    inner = filled_linear(0)
    load(checkpoint, model=inner)
    assert bool(torch.all(inner.weight == 3))


def test_E136_missing_and_unexpected_names_are_told_with_the_nearest() -> None:
    checkpoint = saved(model=nn.ModuleDict({"lm_head": nn.Linear(2, 2, bias=False)}))
    model = nn.ModuleDict({"head": nn.Linear(2, 2, bias=False)})
    before = model.get_parameter("head.weight").detach().clone()
    with pytest.raises(MissingNames, match=r"model\.head\.weight \(nearest: model\.lm_head\.weight\)") as error:
        load(checkpoint, model=model)
    assert error.value.missing == ("model.head.weight",)
    assert error.value.unexpected == ("model.lm_head.weight",)
    allowed = {"allow_missing": ["model.head"], "allow_unexpected": ["model.lm_head.weight"]}
    assert load(checkpoint, options=allowed, model=model).kept_fresh == ["model.head.weight"]
    assert torch.equal(model.get_parameter("head.weight"), before)


def test_an_item_the_checkpoint_lacks_is_missing_under_its_name() -> None:
    checkpoint = saved(model=filled_linear(1))
    items: list[Any] = [{}, PerRank(3), nn.Linear(1, 1), Counting()]
    for item in items:
        with pytest.raises(MissingNames, match="other"):
            load(checkpoint, other=item)
        assert load(checkpoint, options={"allow_missing": ["other"]}, other=item).kept_fresh[0].startswith("other")


class Counting:
    def state_dict(self) -> dict[str, Any]:
        return {"n": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError("nothing to load")


def test_weights_alone_load_from_a_full_checkpoint() -> None:
    model = filled_linear(2)
    optimizer = torch.optim.Adam(model.parameters())
    checkpoint = saved(model=model, optimizer=optimizer, extra={"epoch": 3})
    fresh = filled_linear(0)
    load(checkpoint, model=fresh)
    assert bool(torch.all(fresh.weight == 2))
    assert {request.name for request in checkpoint.requests} == {"model.weight", "model.bias"}


@pytest.mark.parametrize("shape", [(4, 8), (32,), (8, 5)], ids=str)
def test_E206_another_shape_is_an_error_and_nothing_is_written(shape: tuple[int, ...]) -> None:
    checkpoint = saved(w={"a": torch.ones(3), "b": torch.ones(8, 4)})
    live = {"a": torch.zeros(3), "b": torch.zeros(shape)}
    with pytest.raises(ShapeMismatch, match=r"w\.b is \(8, 4\) in the checkpoint and \("):
        load(checkpoint, w=live)
    assert not live["a"].any()
    assert not live["b"].any()


def test_E206_another_dtype_is_an_error_unless_cast() -> None:
    checkpoint = saved(w={"a": torch.ones(3), "b": torch.full((8, 4), 1.5)})
    live = {"a": torch.zeros(3), "b": torch.zeros(8, 4, dtype=torch.bfloat16)}
    with pytest.raises(DtypeMismatch, match=r"w\.b is float32 in the checkpoint and bfloat16 here"):
        load(checkpoint, w=live)
    assert not live["a"].any()
    load(checkpoint, options={"cast": True}, w=live)
    assert live["b"].dtype is torch.bfloat16
    assert bool(torch.all(live["b"] == 1.5))


def test_a_complex_tensor_is_never_cast_to_a_real_one() -> None:
    with pytest.raises(DtypeMismatch):
        load(saved(w=torch.ones(2, dtype=torch.complex64)), options={"cast": True}, w=torch.zeros(2))


def test_E43_low_precision_weights_stay_byte_equal_over_round_trips() -> None:
    def model(fill: int) -> dict[str, torch.Tensor]:
        weights = empty_like_stored("float8_e4m3fn", (4, 4))
        byte_view(weights)[:] = bytes((fill + 7 * at) % 120 for at in range(16))
        return {"w": weights, "scale": torch.full((4, 1), fill + 0.1), "master": torch.full((4, 4), fill + 0.3)}

    first = saved(s=model(3))
    checkpoint = first
    for _ in range(3):
        live = model(0)
        load(checkpoint, s=live)
        checkpoint = saved(s=live)
    for name in ("s.w", "s.scale", "s.master"):
        assert checkpoint.tensor_bytes(name) == first.tensor_bytes(name)


def test_E123_complex_buffers_come_back() -> None:
    def model(value: complex) -> nn.Module:
        module = nn.Module()
        module.register_buffer("rope", torch.full((16,), value, dtype=torch.complex64))
        module.register_buffer("wide", torch.full((2, 2), value, dtype=torch.complex128))
        return module

    fresh = model(0j)
    load(saved(model=model(1 + 2j)), model=fresh)
    assert torch.equal(fresh.state_dict()["rope"], torch.full((16,), 1 + 2j, dtype=torch.complex64))
    assert torch.equal(fresh.state_dict()["wide"], torch.full((2, 2), 1 + 2j, dtype=torch.complex128))


def test_E126_live_tensors_of_any_layout_are_written_in_place() -> None:
    def layouts(base: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "channels_last": base.reshape(2, 3, 2, 2).contiguous(memory_format=torch.channels_last),
            "transposed": base.reshape(4, 6).clone().t(),
            "step": torch.stack((base, base), 1)[:, 0],
            "offset": torch.cat((base[:3], base))[3:],
        }

    values = layouts(torch.arange(24.0))
    live = layouts(torch.zeros(24))
    addresses = {name: tensor.data_ptr() for name, tensor in live.items()}
    load(saved(s=values), s=live)
    for name, tensor in live.items():
        assert torch.equal(tensor, values[name])
        assert tensor.data_ptr() == addresses[name]


def test_an_expanded_live_tensor_cannot_be_loaded_in_place() -> None:
    with pytest.raises(StateError, match="share memory"):
        load(saved(w=torch.ones(4, 2)), w=torch.zeros(2).expand(4, 2))


def test_E104_a_tied_checkpoint_loads_into_tied_and_untied_models() -> None:
    def model(value: float, *, tied: bool) -> nn.ModuleDict:
        made = nn.ModuleDict({"embedding": nn.Embedding(10, 8), "head": nn.Linear(8, 10, bias=False)})
        if tied:
            made["head"].weight = made.get_parameter("embedding.weight")
        for parameter in made.parameters():
            nn.init.constant_(parameter, value)
        return made

    checkpoint = saved(model=model(4, tied=True))
    tied, untied = model(0, tied=True), model(0, tied=False)
    load(checkpoint, model=tied)
    load(checkpoint, model=untied)
    assert tied["head"].weight is tied.get_parameter("embedding.weight")
    for made in (tied, untied):
        assert bool(torch.all(made.get_parameter("head.weight") == 4))
        assert bool(torch.all(made.get_parameter("embedding.weight") == 4))
    report = load(saved(model=untied), model=tied)
    assert len(report.notes) == 1
    assert "tied here and were two tensors" in report.notes[0]


def test_extra_state_goes_back_through_set_extra_state() -> None:
    class Extra(nn.Module):
        def __init__(self, count: int) -> None:
            super().__init__()
            self.count = {"n": count, "t": torch.full((2,), float(count)), 3: "int key"}

        def get_extra_state(self) -> Any:
            return self.count

        def set_extra_state(self, state: Any) -> None:
            self.count = state

    fresh = nn.Sequential(Extra(0))
    load(saved(model=nn.Sequential(Extra(7))), model=fresh)
    count: Any = fresh[0].count
    assert count["n"] == 7
    assert count["t"].tolist() == [7, 7]
    assert count[3] == "int key"


def test_E54_a_count_comes_back_as_a_buffer_and_as_extra_state() -> None:
    """Of an averaged model: a decay that warms up by its count would else begin anew, and overwrite the average."""

    class Averaged(nn.Module):
        updates: torch.Tensor

        def __init__(self, count: int) -> None:
            super().__init__()
            self.register_buffer("updates", torch.tensor(count))
            self.count = count

        def get_extra_state(self) -> int:
            return self.count

        def set_extra_state(self, state: int) -> None:
            self.count = state

    fresh = Averaged(0)
    load(saved(average=Averaged(5000)), average=fresh)
    assert (fresh.updates.dtype, fresh.updates.shape, fresh.updates.item()) == (torch.int64, (), 5000)
    assert (type(fresh.count), fresh.count) == (int, 5000)


def test_computed_entries_go_back_through_load_state_dict() -> None:
    class Packed(nn.Module):
        """Keeps `inner` out of the module tree and stores twice its value."""

        def __init__(self, value: float) -> None:
            super().__init__()
            self.inner = [torch.full((2,), value)]
            self.register_state_dict_post_hook(partial(self._save))  # type: ignore[no-untyped-call]
            self.register_load_state_dict_pre_hook(partial(self._load))  # type: ignore[no-untyped-call]

        def _save(self, module: Any, state: dict[str, Any], prefix: str, _: Any) -> None:
            state[f"{prefix}x"] = self.inner[0] * 2

        def _load(self, module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
            self.inner[0] = state.pop(f"{prefix}x") / 2

    fresh = Packed(0)
    load(saved(model=Packed(3)), model=fresh)
    assert fresh.inner[0].tolist() == [3, 3]


def test_non_persistent_buffers_are_left_alone() -> None:
    def with_scratch(value: float) -> nn.Module:
        model = nn.Module()
        model.register_buffer("scratch", torch.full((2,), value), persistent=False)
        return model

    live = with_scratch(5)
    load(saved(model=with_scratch(1)), model=live)
    assert live.get_buffer("scratch").tolist() == [5, 5]


# --- plain containers and other objects ------------------------------------------------------------------------------


def test_E199_values_come_back_into_the_callers_dict() -> None:
    values = {"epoch": 20, "name": "y", "lr": 0.5, "hist": [1, 2], "none": None, "raw": b"x", "deep": {"k": (1, 2)}}
    checkpoint = saved(s={**values, "w": torch.ones(2)})
    live_tensor, hist = torch.zeros(2), [0]
    live = {"epoch": 0, "name": "x", "lr": 0.0, "hist": hist, "none": 1, "raw": b"", "deep": {}, "w": live_tensor}
    load(checkpoint, s=live)
    assert live["w"] is live_tensor
    assert live_tensor.tolist() == [1, 1]
    assert {key: live[key] for key in values} == values
    assert live["hist"] is hist


def test_a_dict_takes_entries_it_did_not_have_and_a_list_its_length() -> None:
    live: dict[str, Any] = {}
    history: list[int] = []
    load(saved(s={"best": 3, "w": torch.ones(2)}, history=[1, 2, 3]), s=live, history=history)
    assert live["best"] == 3
    assert live["w"].tolist() == [1, 1]
    assert history == [1, 2, 3]


def test_an_entry_the_checkpoint_lacks_is_missing_and_kept_if_allowed() -> None:
    checkpoint = saved(s={"epoch": 3})
    live = {"epoch": 0, "decay": 0.9}
    with pytest.raises(MissingNames, match=r"s\.decay"):
        load(checkpoint, s=live)
    assert live["epoch"] == 0
    load(checkpoint, options={"allow_missing": ["s.decay"]}, s=live)
    assert live == {"epoch": 3, "decay": 0.9}


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_E99_zero_dimensional_tensors_keep_shape_and_dtype_on_every_rank(world_size: int) -> None:
    def scalars(value: int) -> dict[str, torch.Tensor]:
        dtypes = (torch.float32, torch.int64, torch.bool, torch.bfloat16)
        return {str(dtype): torch.tensor(value, dtype=dtype) for dtype in dtypes}

    captures = [TrainingState({"s": scalars(1)}).capture() for _ in range(world_size)]
    for rank in range(world_size):
        live = scalars(0)
        load(MemoryCheckpoint.of(*captures), rank=rank, world_size=world_size, s=live)
        assert all(torch.equal(live[key], value) and live[key].shape == () for key, value in scalars(1).items())


def test_E133_integer_keys_of_a_scheduler_stay_integers() -> None:
    def scheduler() -> torch.optim.lr_scheduler.MultiStepLR:
        optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[25, 50])

    first = scheduler()
    first.last_epoch = 30
    checkpoint = saved(scheduler=first)
    for _ in range(2):
        live = scheduler()
        load(checkpoint, scheduler=live)
        assert live.milestones == Counter({25: 1, 50: 1})
        assert type(live.milestones) is Counter
        assert live.last_epoch == 30
        checkpoint = saved(scheduler=live)


class Averages:
    """An object whose state holds lists of tensors."""

    def __init__(self, value: float) -> None:
        self.shadow = [torch.full((2,), value), torch.full((3,), value)]
        self.updates = int(value)

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self.shadow, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shadow, self.updates = state["shadow"], state["updates"]


def test_stateful_objects_get_the_dict_they_gave() -> None:
    live = Averages(0)
    load(saved(ema=Averages(4)), ema=live)
    assert [tensor.tolist() for tensor in live.shadow] == [[4, 4], [4, 4, 4]]
    assert live.updates == 4
    assert type(live.shadow) is list


def test_shards_load_into_other_shards_and_whole() -> None:
    whole = torch.arange(12.0).reshape(4, 3)
    parts = [{"w": Sharded(whole[2 * rank : 2 * rank + 2], shape=(4, 3), offset=(2 * rank, 0))} for rank in range(2)]
    checkpoint = MemoryCheckpoint.of(*(TrainingState({"s": part}).capture() for part in parts))
    column = {"w": Sharded(torch.zeros(4, 1), shape=(4, 3), offset=(0, 1))}
    load(checkpoint, world_size=3, s=column)
    assert column["w"].local.flatten().tolist() == whole[:, 1].tolist()
    plain = {"w": torch.zeros(4, 3)}
    load(checkpoint, s=plain)
    assert torch.equal(plain["w"], whole)


def test_marked_parameters_load_their_box() -> None:
    whole = filled_linear(0, bias=False)
    with torch.no_grad():
        whole.weight.copy_(torch.arange(6.0).reshape(2, 3))
    part = nn.Linear(3, 1, bias=False)
    mark(part.weight, shape=(2, 3), offset=(1, 0))
    load(saved(model=whole), model=part)
    assert part.weight.flatten().tolist() == [3, 4, 5]


def test_per_rank_values_return_to_their_rank_and_stay_fresh_on_another_world_size() -> None:
    def state(rank: int) -> dict[str, Any]:
        return {"own": PerRank([rank]), "clock": rank * 10, "epoch": 5}

    checkpoint = MemoryCheckpoint.of(*(TrainingState({"s": state(rank)}).capture() for rank in range(2)))
    live = {"own": PerRank([9]), "clock": -1, "epoch": 0}
    load(checkpoint, rank=1, world_size=2, s=live)
    assert (live["own"].value, live["clock"], live["epoch"]) == ([1], 10, 5)  # type: ignore[attr-defined]
    fresh = {"own": PerRank([9]), "clock": -1, "epoch": 0}
    report = load(checkpoint, world_size=1, s=fresh)
    assert (fresh["own"].value, fresh["clock"], fresh["epoch"]) == ([9], -1, 5)  # type: ignore[attr-defined]
    assert sorted(report.kept_fresh) == ["s.clock", "s.own"]
    assert len(report.notes) == 2


def test_a_per_rank_item_keeps_what_each_rank_had() -> None:
    checkpoint = MemoryCheckpoint.of(*(TrainingState({"own": PerRank({"n": rank})}).capture() for rank in range(2)))
    live = {"n": -1}
    load(checkpoint, rank=1, world_size=2, own=PerRank(live))
    assert live == {"n": 1}
    assert load(checkpoint, world_size=3, own=PerRank(live)).kept_fresh == ["own"]


def test_differing_buffers_return_to_their_rank() -> None:
    def model(mean: float) -> nn.Module:
        norm = nn.BatchNorm1d(2)
        norm.get_buffer("running_mean").fill_(mean)
        return norm

    checkpoint = MemoryCheckpoint.of(*(TrainingState({"model": model(rank)}).capture() for rank in range(2)))
    for rank, world_size, expected in ((1, 2, 1.0), (0, 2, 0.0), (2, 3, 0.0)):
        live = model(-1)
        load(checkpoint, rank=rank, world_size=world_size, model=live)
        assert live.get_buffer("running_mean").tolist() == [expected] * 2


def test_a_structure_of_another_kind_is_an_error() -> None:
    with pytest.raises(LoadError, match="dict"):
        load(saved(s={"a": 1}), s=[1])


def test_names_saved_flat_are_found_by_their_text() -> None:
    model = filled_linear(6)
    checkpoint = saved(model={key: value.clone() for key, value in nn.ModuleDict({"a": model}).state_dict().items()})
    live = nn.ModuleDict({"a": filled_linear(0)})
    load(checkpoint, model=live)
    assert bool(torch.all(live.get_parameter("a.weight") == 6))


def test_state_saved_by_run_save_loads_too_and_is_judged() -> None:
    checkpoint = saved(s={"w": torch.ones(2), "epoch": 3}, t={"k": 1})
    plain = checkpoint.without("@structure.s", "@structure.t")
    live: dict[str, Any] = {"w": torch.zeros(2), "epoch": 0}
    load(plain, s=live)
    assert live["epoch"] == 3
    assert live["w"].tolist() == [1, 1]
    with pytest.raises(MissingNames) as error:
        load(plain, s={"epoch": 0, "new": 1})
    assert (error.value.missing, error.value.unexpected) == (("s.new",), ("s.w",))


def test_pieces_that_need_a_temporary_are_read_in_bounded_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "TEMPORARY_BYTES", 64)
    expected = {"a": torch.arange(60.0).reshape(10, 6), "b": torch.arange(15.0).reshape(3, 5)}
    live = {"a": torch.zeros(6, 10).t(), "b": torch.zeros(5, 3).t()}
    checkpoint = saved(s=expected)
    load(checkpoint, s=live)
    assert all(torch.equal(live[key], value) for key, value in expected.items())
    assert max(len(request.out) for request in checkpoint.requests) <= 64


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_what_was_loaded_is_let_go_with_its_last_owner_and_not_when_cycles_are_collected() -> None:
    """State that lies in a scratch file takes disk for as long."""
    model = filled_linear(1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    checkpoint = saved(model=model, optimizer=optimizer)
    again = filled_linear(0)
    other = torch.optim.Adam(again.parameters())
    load(checkpoint, model=again, optimizer=other)
    checkpoint.requests.clear()
    moment = weakref.ref(other.state[again.weight]["exp_avg"])
    assert moment() is not None
    other.state.clear()
    assert moment() is None
