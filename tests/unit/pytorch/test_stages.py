"""Ranks that hold different names: pipeline stages, experts, hand-made shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from shardkeep.errors import MissingNames
from shardkeep.pytorch.capture import TrainingState
from shardkeep.pytorch.marks import Sharded
from shardkeep.pytorch.restore import RestoreReport
from tests.unit.pytorch.memory_checkpoint import MemoryCheckpoint, RankSave

NAMES = ("a", "b", "c")
RATES = {"a": 0.5, "b": 0.25, "c": 0.25}


class Ranks(list[RankSave]):
    """What ranks saved; notes whose is looked at."""

    def __init__(self, saved: Sequence[RankSave]) -> None:
        super().__init__(saved)
        self.read: list[int] = []

    def __getitem__(self, rank: Any) -> Any:
        self.read.append(rank)
        return super().__getitem__(rank)


class Others:
    """Other ranks that use all names but `unused`."""

    def __init__(self, *unused: str) -> None:
        self.unused = set(unused)

    def of_all_ranks(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self.unused]


class Layer(nn.Linear):
    """With state that is no tensor."""

    calls = 0

    def get_extra_state(self) -> int:
        return self.calls

    def set_extra_state(self, state: int) -> None:
        self.calls = state


def stage(names: Sequence[str], *, trained: bool) -> dict[str, Any]:
    """Some of the layers and an optimizer with a group for each rate."""
    torch.manual_seed(0)
    weights = {name: torch.randn(3, 3) for name in NAMES}
    model = nn.ModuleDict({name: Layer(3, 3, bias=False) for name in names})
    rates = dict.fromkeys(RATES[name] for name in names)
    groups: list[dict[str, Any]] = [
        {"params": [model[name].get_parameter("weight") for name in names if RATES[name] == rate], "lr": rate}
        for rate in rates
    ]
    optimizer = torch.optim.AdamW(groups)
    if trained:
        for name in names:
            layer = model[name]
            assert isinstance(layer, Layer)
            layer.calls = 10 + NAMES.index(name)
            with torch.no_grad():
                layer.get_parameter("weight").copy_(weights[name])
            layer.get_parameter("weight").grad = weights[name].flip(0)
        optimizer.step()
    else:
        for group in optimizer.param_groups:
            group["lr"] = 9.0
    return {"model": model, "optimizer": optimizer}


def saved(*ranks: Sequence[str], state: Sequence[dict[str, object]] = ()) -> MemoryCheckpoint:
    items = state or [stage(names, trained=True) for names in ranks]
    checkpoint = MemoryCheckpoint.of(*(TrainingState(each).capture() for each in items))
    checkpoint.ranks = Ranks(checkpoint.ranks)
    return checkpoint


def restore(
    checkpoint: MemoryCheckpoint, items: dict[str, Any], *, rank: int, world_size: int, others: Others | None = None
) -> RestoreReport:
    return TrainingState(items).restore(checkpoint, rank=rank, world_size=world_size, unused=others)


def assert_restored(items: dict[str, Any], names: Sequence[str]) -> None:
    whole = stage(NAMES, trained=True)
    for name in names:
        layer, expected = items["model"][name], whole["model"][name]
        assert torch.equal(layer.weight, expected.weight)
        assert layer.calls == expected.calls
        state = items["optimizer"].state[layer.weight]
        for key, value in whole["optimizer"].state[expected.weight].items():
            assert torch.equal(state[key], value)
    for group in items["optimizer"].param_groups:
        assert {RATES[name] for name in names if items["model"][name].weight in set(group["params"])} == {group["lr"]}


def read_by(checkpoint: MemoryCheckpoint) -> set[int]:
    ranks = checkpoint.ranks
    assert isinstance(ranks, Ranks)
    return set(ranks.read)


@pytest.mark.parametrize("ranks", [[NAMES], [NAMES[:1], NAMES[1:]], [NAMES[:1], NAMES[:1], NAMES[1:2], NAMES[2:]]])
def test_stages_and_whole_models_load_one_another(ranks: list[Sequence[str]]) -> None:
    for names in (NAMES, NAMES[:2], NAMES[2:]):
        for world_size in (len(ranks), 7):
            items = stage(names, trained=False)
            report = restore(saved(*ranks), items, rank=0, world_size=world_size, others=Others())
            assert report.notes == []
            assert_restored(items, names)


def test_only_the_manifests_that_hold_what_a_rank_needs_are_read() -> None:
    checkpoint = saved(("a",), ("a",), ("b",), ("c",))
    restore(checkpoint, stage(("b",), trained=False), rank=2, world_size=4, others=Others())
    assert read_by(checkpoint) == {2}, "a rank that resumes where it was needs no other's"

    elsewhere = saved(("a",), ("a",), ("b",), ("c",))
    restore(elsewhere, stage(("b",), trained=False), rank=1, world_size=3, others=Others())
    assert read_by(elsewhere) == {0, 2}

    equal = saved(NAMES, NAMES, NAMES)
    restore(equal, stage(NAMES, trained=False), rank=1, world_size=2)
    assert read_by(equal) == {0}


def test_names_that_only_other_ranks_have_are_unexpected_where_no_rank_has_them() -> None:
    checkpoint = saved(("a",), ("b",), ("c",))
    with pytest.raises(MissingNames) as missing:
        restore(checkpoint, stage(("a",), trained=False), rank=0, world_size=2, others=Others("model.c.weight"))
    assert missing.value.unexpected == ("model.c.weight",)
    with pytest.raises(MissingNames):
        restore(checkpoint, stage(("a",), trained=False), rank=0, world_size=2)


def test_options_that_differ_between_replicas_stay_and_the_rest_of_the_optimizer_is_loaded() -> None:
    ranks = [stage(NAMES, trained=True) for _ in range(2)]
    ranks[1]["optimizer"].param_groups[0]["weight_decay"] = 0.75
    items = stage(NAMES, trained=False)
    report = restore(saved(state=ranks), items, rank=0, world_size=1)
    (note,) = report.notes
    assert note.startswith("optimizer group 0 keeps its own options")
    assert [group["lr"] for group in items["optimizer"].param_groups] == [9.0, 0.25]
    assert len(items["optimizer"].state) == 3


def test_ties_of_a_stage_are_known_to_a_model_that_holds_all() -> None:
    def tied(*names: str) -> nn.ModuleDict:
        torch.manual_seed(1)
        layers = nn.ModuleDict({name: nn.Linear(2, 2, bias=False) for name in names})
        if "head" in layers:
            layers["head"].register_parameter("weight", layers["embed"].get_parameter("weight"))
        return layers

    stages: list[dict[str, object]] = [{"model": tied("first")}, {"model": tied("embed", "head")}]
    checkpoint = saved(state=stages)
    untied = nn.ModuleDict({name: nn.Linear(2, 2, bias=False) for name in ("first", "embed", "head")})
    restore(checkpoint, {"model": untied}, rank=0, world_size=1)
    assert torch.equal(untied["head"].get_parameter("weight"), untied["embed"].get_parameter("weight"))


def test_a_dict_of_shards_takes_no_tensor_that_another_rank_has() -> None:
    checkpoint = saved(state=[{"flat": {"x": torch.ones(4), "y": torch.full((2,), 2.0)}}])
    for others, taken in ((Others(), ["y"]), (Others("flat.x"), ["y", "x"]), (None, ["y", "x"])):
        held = Sharded(torch.zeros(1), shape=(2,), offset=(1,))
        flat: dict[str, Any] = {"y": held}
        restore(checkpoint, {"flat": flat}, rank=1, world_size=2, others=others)
        assert sorted(flat) == sorted(taken)
        assert flat["y"] is held
        assert held.local.tolist() == [2.0]
