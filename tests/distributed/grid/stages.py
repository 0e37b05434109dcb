"""Two pipeline stages of two replicas: each rank has layers of its own under the same top-level names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

import shardkeep.pytorch as skt
from shardkeep.errors import MissingNames
from tests.distributed.grid.contents import content, difference

STAGES: tuple[tuple[str, ...], ...] = (("embed", "norm0"), ("norm1", "middle", "head"))
MOMENTS = ("exp_avg", "exp_avg_sq")
RATES = {"embed": 0.1, "norm0": 0.1, "norm1": 0.2, "middle": 0.2, "head": 0.2}
Found = dict[str, Any]


class Counted(nn.Linear):
    """A layer with state that is no tensor."""

    calls = 0

    def get_extra_state(self) -> dict[str, Any]:
        return {"calls": self.calls, "shape": [self.in_features, self.out_features]}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]


def make_layers(names: Sequence[str]) -> nn.ModuleDict:
    """Layers by name. The head is tied to the middle."""
    made: dict[str, nn.Module] = {}
    for name in names:
        made[name] = nn.BatchNorm1d(5) if name.startswith("norm") else Counted(5, 5, bias=name != "head")
    if "head" in made:
        made["head"].register_parameter("weight", made["middle"].get_parameter("weight"))
    return nn.ModuleDict(made)


def make_optimizer(layers: nn.ModuleDict) -> torch.optim.AdamW:
    """One group for each rate that the layers have."""
    groups: dict[float, list[nn.Parameter]] = {}
    for name, layer in layers.items():
        fresh = [
            parameter for parameter in layer.parameters() if not any(parameter is p for g in groups.values() for p in g)
        ]
        groups.setdefault(RATES[name], []).extend(fresh)
    return torch.optim.AdamW([{"params": found, "lr": 0.0} for found in groups.values()])


def make(names: Sequence[str], *, stage: int | None) -> dict[str, Any]:
    """What a keeper is given by a rank with these layers; the schedules of stages have names of their own."""
    layers = make_layers(names)
    optimizer = make_optimizer(layers)
    stages = (0, 1) if stage is None else (stage,)
    schedules = {f"schedule{each}": torch.optim.lr_scheduler.StepLR(optimizer, step_size=3) for each in stages}
    return {"model": layers, "optimizer": optimizer, "loop": {"seen": 0}, **schedules}


def fill(items: dict[str, Any], *, replica: int) -> None:
    """Known contents; BatchNorm's mean is the replica's number."""
    layers, optimizer = items["model"], items["optimizer"]
    with torch.no_grad():
        for name, parameter in layers.named_parameters():
            parameter.copy_(content(name, tuple(parameter.shape)))
            moments = {slot: content(f"{name}.{slot}", tuple(parameter.shape)) for slot in MOMENTS}
            optimizer.state[parameter] = {"step": torch.tensor(float(len(name))), **moments}
        for name, layer in layers.items():
            if isinstance(layer, Counted):
                layer.calls = 100 + len(name)
            elif isinstance(layer, nn.BatchNorm1d) and layer.running_mean is not None:
                layer.running_mean.fill_(replica)
    for group in optimizer.param_groups:
        group["lr"] = _rate_of(layers, group)
    items["loop"]["seen"] = 12
    for number in range(2):
        if f"schedule{number}" in items:
            items[f"schedule{number}"].last_epoch = 40 + number


def _rate_of(layers: nn.ModuleDict, group: dict[str, Any]) -> float:
    (rate,) = {RATES[name] for name, layer in layers.items() for p in layer.parameters() if p is group["params"][0]}
    return rate


def look_at(items: dict[str, Any]) -> Found:
    """What is wrong, by name; and what is not known beforehand."""
    layers, optimizer = items["model"], items["optimizer"]
    problems = {}
    for name, parameter in layers.named_parameters():
        problems[name] = difference(parameter.detach(), content(name, tuple(parameter.shape)))
        for slot in MOMENTS:
            held = optimizer.state[parameter][slot]
            problems[f"{name}.{slot}"] = difference(held, content(f"{name}.{slot}", tuple(parameter.shape)))
    return {
        "names": sorted(name for name, _ in layers.named_parameters()),
        "problems": {name: problem for name, problem in problems.items() if problem},
        "rates": [group["lr"] for group in optimizer.param_groups]
        == [_rate_of(layers, g) for g in optimizer.param_groups],
        "calls": {name: layer.calls - 100 for name, layer in layers.items() if isinstance(layer, Counted)},
        "means": {name: float(layer.running_mean[0]) for name, layer in layers.items() if name.startswith("norm")},
        "schedules": {name: item.last_epoch for name, item in items.items() if name.startswith("schedule")},
        "seen": items["loop"]["seen"],
    }


def layers_of(rank: int, world_size: int, layout: str) -> tuple[Sequence[str], int | None]:
    """`whole` on every rank, `stages` (the first half of the ranks has the first), or `swapped`."""
    if layout == "whole":
        return [name for stage in STAGES for name in stage], None
    stage = rank * 2 // world_size
    stage = 1 - stage if layout == "swapped" else stage
    return STAGES[stage], stage


def save(rank: int, world_size: int, *, run: str, layout: str) -> None:
    names, stage = layers_of(rank, world_size, layout)
    items = make(names, stage=stage)
    fill(items, replica=rank % 2)
    with torch.no_grad():
        items["model"].eval()
    with skt.Checkpointer(run, state=items, signals=False) as keeper:
        keeper.save(5)


def load(rank: int, world_size: int, *, run: str, layout: str) -> Found:
    names, stage = layers_of(rank, world_size, layout)
    items = make(names, stage=stage)
    with skt.Checkpointer(run, state=items, signals=False) as keeper:
        keeper.resume()
    assert keeper.resumed is not None
    ours = [reason for reason in keeper.resumed.reasons if "world size" not in reason]
    return {**look_at(items), "reasons": ours, "verdict": keeper.resumed.verdict}


def load_without_a_layer(rank: int, world_size: int, *, run: str) -> list[str]:
    """No rank has the layer that is in the checkpoint: what is said to be unexpected."""
    names, stage = layers_of(rank, world_size, "stages")
    items = make([name for name in names if name != "norm1"], stage=stage)
    try:
        with skt.Checkpointer(run, state=items, signals=False) as keeper:
            keeper.resume()
    except MissingNames as error:
        return sorted(error.unexpected)
    return []


def load_one_rank_with_more(rank: int, world_size: int, *, run: str) -> str:
    """One rank has a layer that nobody saved: it says so and keeps no other waiting."""
    names, stage = layers_of(rank, world_size, "stages")
    items = make(names, stage=stage)
    if rank == 0:
        items["model"]["extra"] = nn.Linear(2, 2)
    try:
        with skt.Checkpointer(run, state=items, signals=False) as keeper:
            keeper.resume()
    except MissingNames as error:
        return ",".join(sorted(error.missing))
    return "resumed"
