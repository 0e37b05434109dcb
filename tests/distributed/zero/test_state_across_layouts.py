"""Whatever saved it (world, stage, offload, FSDP2, plain), whatever loads it: equal by name, and as it goes on."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

from tests.distributed.launcher import RankPools
from tests.distributed.zero.setups import Setup, build, restore, saved, unequal, whole

BF16 = torch.bfloat16
WAYS = [
    Setup("zero", 4, stage=1),
    Setup("zero", 3, stage=2, offload="cpu"),
    Setup("zero", 2, stage=3),
    Setup("zero", 1, stage=2),
    Setup("zero", 2, stage=1, offload="cpu"),
    Setup("zero", 3, stage=3, offload="cpu"),
    Setup("zero", 4, stage=2, layout="whole"),
    Setup("plain"),
    Setup("fsdp2", 2),
]
ROUNDING = {torch.float32: 0.0, torch.bfloat16: 2**-6}
Tensors = dict[str, torch.Tensor]


def exchange(rank: int, world_size: int, *, source: Setup, targets: list[Setup], max_norm: float | None) -> list[str]:
    """What is wrong with each target after it loaded what the source saved, and after two further steps."""
    trained = build(source)
    if trained is not None:
        trained.train(range(2), max_norm=max_norm)
    checkpoint = saved(trained, source.world)
    if trained is not None:
        trained.train(range(2, 4), max_norm=max_norm)
    after = whole(saved(trained, source.world))
    wrong = []
    for target in targets:
        if "zero" not in {source.kind, target.kind} and source.dtype != target.dtype:
            continue  # a cast that no sharded optimizer has part in
        loaded = build(target, seed=77)
        notes = restore(loaded, checkpoint, cast=source.dtype != target.dtype)
        found = without_empty(whole(saved(loaded, target.world)))
        told = unequal(found, as_kept_by(target, source, whole(checkpoint)))
        if loaded is not None:
            loaded.train(range(2, 4), max_norm=max_norm)
        found = without_empty(whole(saved(loaded, target.world)))
        within = distance(source, target, max_norm)
        told += [f"later {each}" for each in unequal(found, as_kept_by(target, source, after), within=within)]
        is_rounded = target.kind != "zero" and target.dtype == BF16 and source.kind == "zero"
        if rank < target.world and bool(notes) != is_rounded:
            told.append(f"the notes are {notes}")
        wrong += [f"{source} -> {target}: {each}" for each in told]
    return wrong


def distance(source: Setup, target: Setup, max_norm: float | None) -> float:
    """How far apart two steps may lead: not at all where both step values of one dtype."""
    if {"zero"} != {source.kind, target.kind} and BF16 in {stepped(source), stepped(target)}:
        return ROUNDING[BF16]
    return 0.0 if max_norm is None else 1e-6


def without_empty(tensors: Tensors) -> Tensors:
    """Without the state of the parameter that has no elements: who shards it has none, torch.optim counts its steps."""
    return {name: one for name, one in tensors.items() if not name.startswith("optimizer.state.model.first.empty.")}


def stepped(setup: Setup) -> torch.dtype:
    return torch.float32 if setup.kind == "zero" else setup.dtype


def as_kept_by(target: Setup, source: Setup, tensors: Tensors) -> Tensors:
    """What the target should hold of what the source saved."""
    kept: Tensors = {}
    tensors = without_empty(tensors)
    masters = {
        name.removesuffix(".master_param"): one for name, one in tensors.items() if name.endswith(".master_param")
    }
    for name, tensor in tensors.items():
        if name.startswith("model."):
            master = masters.get(f"optimizer.state.{name}", tensor)
            kept[name] = tensor if tensor.dtype == target.dtype else master.to(target.dtype)
            is_stepped = "frozen" not in name
            if target.kind == "zero" and target.dtype == BF16 and is_stepped and tensor.numel():
                kept[f"optimizer.state.{name}.master_param"] = master.float()
        elif not name.endswith(".master_param"):
            is_array = tensor.ndim > 0 or ("scalar" in name and not name.endswith(".step"))
            kept[name] = tensor.to(stepped(target)) if is_array else tensor
    return kept


def no_difference(wrong: list[list[str]]) -> None:
    told = [each for of_rank in wrong for each in of_rank]
    assert not told, "\n".join(told[:40])


@pytest.mark.parametrize("source", WAYS, ids=str)
def test_state_is_equal_by_name_whatever_saved_it_and_whatever_loads_it(rank_pools: RankPools, source: Setup) -> None:
    no_difference(rank_pools.of(4).run(exchange, source=source, targets=WAYS, max_norm=None))


@pytest.mark.parametrize("source", [replace(way, dtype=BF16) for way in WAYS], ids=str)
def test_masters_go_along_where_parameters_are_bf16(rank_pools: RankPools, source: Setup) -> None:
    targets = [replace(way, dtype=dtype) for way, dtype in product(WAYS, (BF16, torch.float32))]

    no_difference(rank_pools.of(4).run(exchange, source=source, targets=targets, max_norm=None))


def test_masters_are_the_weights_of_an_fp32_model(rank_pools: RankPools) -> None:
    targets = [replace(way, dtype=BF16) for way in WAYS if way.kind == "zero"]

    for source in (WAYS[0], WAYS[7], WAYS[8]):
        no_difference(rank_pools.of(4).run(exchange, source=source, targets=targets, max_norm=None))


def test_clipped_steps_after_a_load_are_equal_to_a_millionth(rank_pools: RankPools) -> None:
    for source in (WAYS[1], WAYS[2], WAYS[7]):
        no_difference(rank_pools.of(4).run(exchange, source=source, targets=WAYS, max_norm=0.5))


INNERS = {
    "amsgrad": (torch.optim.Adam, {"lr": 2**-6, "amsgrad": True}),
    "momentum": (torch.optim.SGD, {"lr": 2**-6, "momentum": 0.9, "nesterov": True}),
    "no state": (torch.optim.SGD, {"lr": 2**-6}),
    "counters": (torch.optim.NAdam, {"lr": 2**-6}),
    "eager": (torch.optim.Adagrad, {"lr": 2**-6}),
}


@pytest.mark.parametrize("inner", INNERS)
def test_state_of_any_elementwise_optimizer_is_equal_by_name(rank_pools: RankPools, inner: str) -> None:
    cls, options = INNERS[inner]
    ways = [replace(way, inner=cls, options=options) for way in (WAYS[1], WAYS[2], WAYS[7])]

    for source in ways:
        no_difference(rank_pools.of(4).run(exchange, source=source, targets=ways, max_norm=None))
