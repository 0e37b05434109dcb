"""Faults that others met in saving, loading and resharding sharded optimizers, each tried here."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from shardkeep.pytorch.capture import TrainingState
from shardkeep.zero import ShardedOptimizer
from tests.distributed.launcher import RankPools
from tests.distributed.zero.setups import Model, Odd, Setup, Trained, build, restore, saved, unequal, whole
from tests.unit.pytorch.memory_checkpoint import MemoryCheckpoint, save

Shapes = dict[str, tuple[int, ...]]
BF16 = torch.bfloat16


def odd(dtype: torch.dtype, *, seed: int, shapes: Shapes) -> nn.Module:
    return Odd(shapes, seed).to(dtype)


def round_trips(
    rank: int,
    world_size: int,
    *,
    shapes: Shapes,
    pairs: list[tuple[Setup, list[Setup]]],
    params: Any = nn.Module.parameters,
) -> list[str]:
    """Each source's state in each of its targets: what is not equal by name, then and after a further step."""
    wrong = []
    for source, targets in pairs:
        make = partial(odd, shapes=shapes)
        trained = build(source, make=make, params=params)
        if trained is not None:
            trained.train(range(2))
        checkpoint = saved(trained, source.world)
        if trained is not None:
            trained.train(range(2, 3))
        after = whole(saved(trained, source.world))
        for target in targets:
            loaded = build(target, seed=9, make=make, params=params)
            restore(loaded, checkpoint)
            told = unequal(whole(saved(loaded, target.world)), whole(checkpoint))
            if loaded is not None:
                loaded.train(range(2, 3))
            told += [f"later {each}" for each in unequal(whole(saved(loaded, target.world)), after)]
            wrong += [f"{source} -> {target}: {each}" for each in told]
    return wrong


def nothing(wrong: list[list[str]]) -> None:
    told = [each for of_rank in wrong for each in of_rank]
    assert not told, "\n".join(told[:40])


def test_E31_fault_39_stage_1_saved_on_4_ranks_loads_on_3_1_and_7(rank_pools: RankPools) -> None:
    targets = [Setup("zero", world, stage=1) for world in (3, 1, 7)]
    shapes: Shapes = {"a": (5, 3), "b": (11,), "c": ()}

    nothing(rank_pools.of(8).run(round_trips, shapes=shapes, pairs=[(Setup("zero", 4, stage=1), targets)]))


def test_E32_fault_33_and_34_padding_is_never_saved(rank_pools: RankPools) -> None:
    targets = [Setup("zero", world, stage=2, dtype=BF16) for world in (3, 4)]
    shapes: Shapes = {"a": (19, 2), "b": (13,), "c": (6,)}

    nothing(rank_pools.of(8).run(round_trips, shapes=shapes, pairs=[(Setup("zero", 2, stage=2, dtype=BF16), targets)]))


def test_E41_fault_37_and_49_ranks_without_elements_take_part(rank_pools: RankPools) -> None:
    shapes: Shapes = {"a": (2,), "b": (1,), "c": (1, 1)}
    eight = Setup("zero", 8, stage=3)

    nothing(rank_pools.of(8).run(round_trips, shapes=shapes, pairs=[(eight, [eight, Setup("zero", 3, stage=3)])]))


def test_E92_stage_3_of_shapes_that_leave_ranks_empty_loads_on_more_and_fewer(rank_pools: RankPools) -> None:
    shapes: Shapes = {"a": (6,), "b": (1,), "c": (5, 3), "d": (0, 4)}
    targets = [Setup("zero", world, stage=3) for world in (4, 3, 8)]

    nothing(rank_pools.of(8).run(round_trips, shapes=shapes, pairs=[(Setup("zero", 4, stage=3), targets)]))


def test_E100_fault_44_one_element_on_8_ranks_keeps_its_shape(rank_pools: RankPools) -> None:
    ways = [Setup("zero", 8, stage=stage, offload=offload) for stage in (1, 2, 3) for offload in (None, "cpu")]

    nothing(
        rank_pools.of(8).run(round_trips, shapes={"one": (1,)}, pairs=[(way, [way, Setup("plain")]) for way in ways])
    )


def interleaved(model: nn.Module) -> Iterable[dict[str, Any]]:
    """Three groups whose members alternate in the model."""
    named = dict(model.named_parameters())
    return [
        {"params": [one for name, one in named.items() if name.startswith(letter)], "lr": 2.0**-power}
        for power, letter in enumerate("xyz", start=4)
    ]


def test_E29_fault_39_interleaved_groups_keep_their_state_and_options(rank_pools: RankPools) -> None:
    shapes: Shapes = {"x1": (500,), "y1": (3,), "z1": (250,), "x2": (50, 10), "z2": (250,)}
    pairs = [(Setup("zero", 3, stage=1), [Setup("zero", 3, stage=1), Setup("zero", 2, stage=3)])]

    nothing(rank_pools.of(4).run(round_trips, shapes=shapes, pairs=pairs, params=interleaved))


def mixed(dtype: torch.dtype, *, seed: int) -> nn.Module:
    """fp32, bf16 and fp32 in one group."""
    model = Odd({"a": (7,), "b": (7,), "c": (7,)}, seed)
    model.b.data = model.b.data.bfloat16()
    return model


def twins(rank: int, world_size: int) -> list[str]:
    """Two optimizers over equal shapes, and dtypes mixed in one group, on 3 ranks and then on 2 at another stage."""
    wrong = []
    source, target = Setup("zero", 3, stage=2), Setup("zero", 2, stage=3)
    first, second = build(source, make=mixed), build(source, make=mixed, seed=4)
    for trained, steps in ((first, range(2)), (second, range(4, 9))):
        if trained is not None:
            trained.train(steps)
    checkpoint = _saved_together(first, second, source.world)
    again, other = build(target, make=mixed, seed=7), build(target, make=mixed, seed=8)
    if again is not None and other is not None:
        _together(again, other).restore(checkpoint, rank=rank, world_size=target.world)
    found = _saved_together(again, other, target.world)
    wrong += unequal(whole(found), whole(checkpoint))
    counts = {name: float(one) for name, one in whole(found).items() if name.endswith(".step")}
    return wrong + [name for name, count in counts.items() if count != (2 if name.startswith("one.") else 5)]


def _together(first: Trained, second: Trained) -> TrainingState:
    return TrainingState({"m": first.model, "n": second.model, "one": first.optimizer, "two": second.optimizer})


def _saved_together(first: Trained | None, second: Trained | None, world: int) -> MemoryCheckpoint:
    found: list[Any] = [None] * dist.get_world_size()
    own = None if first is None or second is None else save(_together(first, second).capture())
    dist.all_gather_object(found, own)
    return MemoryCheckpoint(found[:world])


def test_E38_E39_two_optimizers_with_mixed_dtypes_keep_their_own_state(rank_pools: RankPools) -> None:
    nothing(rank_pools.of(4).run(twins))


def keep_digits(rank: int, world_size: int) -> list[float]:
    """A master that bf16 cannot hold, never stepped, through another world and stage, into fp32."""
    shapes: Shapes = {"a": (3,), "b": (40,)}
    make = partial(odd, shapes=shapes)
    trained = build(Setup("zero", 3, stage=1, dtype=BF16), make=make)
    if trained is not None:
        optimizer = sharded(trained)
        with torch.no_grad():
            for parameter in trained.model.parameters():
                parameter.fill_(1)
            optimizer.refresh_master()
            for parameter in trained.model.parameters():
                for part in optimizer.state_parts(parameter):
                    part.master.fill_(1 + 2**-20)
    checkpoint = saved(trained, 3)
    second = build(Setup("zero", 2, stage=3, dtype=BF16), make=make)
    restore(second, checkpoint)
    again = saved(second, 2)
    third = build(Setup("zero", 4, stage=3, offload="cpu"), make=make)
    restore(third, again, cast=True)
    fourth = build(Setup("plain"), make=make)
    restore(fourth, again, cast=True)
    found = [whole(again)[f"optimizer.state.model.{name}.master_param"] for name in shapes]
    found += [whole(saved(third, 4))[f"model.{name}"] for name in shapes]
    found += [whole(saved(fourth, 1))[f"model.{name}"] for name in shapes]
    return sorted({float(value) for one in found for value in one})


def sharded(trained: Trained) -> ShardedOptimizer:
    assert isinstance(trained.optimizer, ShardedOptimizer)
    return trained.optimizer


def test_E44_masters_keep_their_digits_through_stages_and_into_fp32(rank_pools: RankPools) -> None:
    assert rank_pools.of(4).run(keep_digits) == [[1 + 2**-20]] * 4


def freeze_and_thaw(rank: int, world_size: int) -> list[str]:
    """Trained, then frozen, saved; frozen when loaded on other ranks, then trained again: as if never away."""
    wrong = []
    source = Setup("zero", 3, stage=2, dtype=BF16)
    trained = build(source)
    if trained is not None:
        trained.train(range(2))
        _train_wide(trained, trained=False)
        trained.train(range(2, 3))
    checkpoint = saved(trained, source.world)
    if trained is not None:
        _train_wide(trained, trained=True)
        trained.train(range(3, 5))
    after = whole(saved(trained, source.world))
    for target in (Setup("zero", 2, stage=3, dtype=BF16), Setup("zero", 4, stage=1, offload="cpu", dtype=BF16)):
        loaded = build(target, seed=3, make=frozen)
        restore(loaded, checkpoint)
        told = unequal(without_frozen(whole(saved(loaded, target.world))), whole(checkpoint))
        if loaded is not None:
            _train_wide(loaded, trained=True)
            loaded.train(range(3, 5))
        told += [f"later {each}" for each in unequal(without_frozen(whole(saved(loaded, target.world))), after)]
        wrong += [f"{target}: {each}" for each in told]
    stepped = [name for name in after if name.endswith(".step")]
    return wrong + [name for name in stepped if "frozen" in name or "idle" in name]


def without_frozen(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A master of what was never trained is there if its bucket has one; it is the parameter."""
    master = tensors.pop("optimizer.state.model.last.frozen.master_param", None)
    assert master is None or torch.equal(master, tensors["model.last.frozen"].float())
    return tensors


def frozen(dtype: torch.dtype, *, seed: int) -> nn.Module:
    model = Model(dtype, seed=seed)
    model.first.get_parameter("wide").requires_grad_(False)
    return model


def _train_wide(one: Trained, *, trained: bool) -> None:
    one.model.get_parameter("first.wide").requires_grad_(trained)
    one.model.first.unused = set() if trained else {"wide"}  # type: ignore[union-attr]


def test_E22_fault_41_state_of_frozen_parameters_is_kept_and_used_once_they_are_trained(rank_pools: RankPools) -> None:
    nothing(rank_pools.of(4).run(freeze_and_thaw))


def only_bias(model: nn.Module) -> list[nn.Parameter]:
    return [model.get_parameter("first.bias")]


def add_later(rank: int, world_size: int) -> list[str]:
    """An optimizer of one parameter loads what one of all saved, saves it again, and gets the others later."""
    wrong = []
    source = Setup("zero", 3, stage=2, dtype=BF16)
    trained = build(source)
    if trained is not None:
        trained.train(range(2))
    checkpoint = saved(trained, source.world)
    if trained is not None:
        trained.train(range(2, 4))
    after = whole(saved(trained, source.world))
    for target in (Setup("zero", 4, stage=2, dtype=BF16), Setup("zero", 2, stage=1, offload="cpu", dtype=BF16)):
        loaded = build(target, seed=3, params=only_bias)
        restore(loaded, checkpoint)
        told = unequal(whole(saved(loaded, target.world)), whole(checkpoint))
        if loaded is not None:
            rest = [one for name, one in loaded.model.named_parameters() if name != "first.bias"]
            loaded.optimizer.add_param_group({"params": rest})
            told += [f"added {each}" for each in _unequal_here(loaded, checkpoint, target.world)]
            loaded.train(range(2, 4))
        else:
            _unequal_here(None, checkpoint, target.world)
        told += [f"later {each}" for each in unequal(whole(saved(loaded, target.world)), after)]
        wrong += [f"{target}: {each}" for each in told]
    return wrong


def _unequal_here(loaded: Trained | None, checkpoint: MemoryCheckpoint, world: int) -> list[str]:
    return unequal(whole(saved(loaded, world)), whole(checkpoint))


def test_state_of_parameters_that_the_optimizer_lacks_is_kept_and_given_back(rank_pools: RankPools) -> None:
    nothing(rank_pools.of(4).run(add_later))


def look_before_stepping(rank: int, world_size: int) -> list[str]:
    """Saving, and gathering, before the first step: no state is made up, and the first step is the first."""
    setup = Setup("zero", 4, stage=2)
    asked, not_asked = build(setup), build(setup)
    assert asked is not None
    assert not_asked is not None
    before = whole(saved(asked, 4))
    told = [name for name in before if name.startswith("optimizer.")]
    told += [str(key) for key in sharded(asked).state_dict()["state"]]
    asked.train(range(1))
    not_asked.train(range(1))
    return told + unequal(whole(saved(asked, 4)), whole(saved(not_asked, 4)))


def test_fault_40_and_46_asking_for_state_before_the_first_step_changes_nothing(rank_pools: RankPools) -> None:
    nothing(rank_pools.of(4).run(look_before_stepping))


class Counting(torch.optim.Optimizer):
    """Keeps a python int, a list and, for matrices, factors of other shapes."""

    def __init__(self, params: Any, lr: float = 0.5) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is None:
                    continue
                state = self.state[one]
                state["count"] = state.get("count", 0) + 1
                state.setdefault("history", []).append(float(state["count"]))
                rows = one.grad.view(one.shape[0], -1).mean(1) if one.ndim else one.grad
                state["rows"] = rows.clone() if "rows" not in state else state["rows"].lerp(rows, 0.5)
                state["nested"] = {"top": rows.new_full((2,), float(state["count"]))}
                one.sub_(group["lr"] * one.grad)


def keep_odd_state(rank: int, world_size: int) -> list[str]:
    """State that is no slice: whole layouts on 3 and 2 ranks, and a plain optimizer."""
    shapes: Shapes = {"a": (3, 4), "b": (5,), "c": ()}
    make = partial(odd, shapes=shapes)
    options = {"lr": 0.5}
    ways = [
        Setup("zero", 3, stage=2, layout="whole", inner=Counting, options=options),
        Setup("zero", 2, stage=3, layout="whole", inner=Counting, options=options),
    ]
    wrong = []
    for source, target in (ways, reversed(ways)):
        trained = build(source, make=make)
        if trained is not None:
            trained.train(range(2))
        checkpoint = saved(trained, source.world)
        if trained is not None:
            trained.train(range(2, 3))
        after = saved(trained, source.world)
        loaded = build(target, make=make, seed=5)
        restore(loaded, checkpoint)
        found = saved(loaded, target.world)
        told = unequal(whole(found), whole(checkpoint)) + _other_values(found, checkpoint)
        if loaded is not None:
            loaded.train(range(2, 3))
        found = saved(loaded, target.world)
        told += unequal(whole(found), whole(after)) + _other_values(found, after)
        wrong += [f"{source} -> {target}: {each}" for each in told]
    return wrong


def _other_values(found: MemoryCheckpoint, wanted: MemoryCheckpoint) -> list[str]:
    here, there = (
        {record.path: record.encoded for rank in one.ranks for record in rank.values} for one in (found, wanted)
    )
    return [path for path in here.keys() | there.keys() if here.get(path) != there.get(path)]


def test_fault_55_python_numbers_lists_and_factors_are_kept_by_their_owners(rank_pools: RankPools) -> None:
    nothing(rank_pools.of(4).run(keep_odd_state))


def save_64_alike(rank: int, world_size: int) -> list[str]:
    """64 parameters of one size, each freed before the next is looked at; a tied pair beside them."""
    shapes: Shapes = {f"expert{number}": (16, 16) for number in range(64)}
    trained = build(Setup("zero", 2, stage=3), make=partial(odd, shapes=shapes))
    found = whole(saved(trained, 2))
    return [] if len({one.numpy().tobytes() for one in found.values()}) == len(found) == 64 else list(found)


def test_E107_parameters_that_are_freed_are_not_taken_for_one(rank_pools: RankPools) -> None:
    nothing(rank_pools.of(4).run(save_64_alike))


def untied(dtype: torch.dtype, *, seed: int) -> nn.Module:
    model = Model(dtype, seed=seed)
    model.last.alias = nn.Parameter(torch.zeros_like(model.last.get_parameter("deep")))
    return model


class Backwards(nn.Module):
    """`Model` with its modules in the other order, and the name `alias` first."""

    def __init__(self, dtype: torch.dtype, *, seed: int) -> None:
        super().__init__()
        model = Model(dtype, seed=seed)
        self.last, self.first = model.last, model.first
        deep = self.last._parameters.pop("deep")
        self.last._parameters["deep"] = deep

    def forward(self, step: int) -> torch.Tensor:
        result: torch.Tensor = self.first(step) + self.last(step)
        return result


def retie(rank: int, world_size: int) -> list[str]:
    """A tied pair is stored once, under the name registered first; loads where names or ties are others."""
    source = Setup("zero", 3, stage=2)
    trained = build(source)
    if trained is not None:
        trained.train(range(2))
    checkpoint = saved(trained, source.world)
    tensors = whole(checkpoint)
    wrong = [name for name in tensors if "alias" in name]
    target = Setup("zero", 4, stage=3)
    loaded = build(target, make=untied, seed=5)
    restore(loaded, checkpoint)
    found = whole(saved(loaded, target.world))
    for prefix in ("model.last", "optimizer.state.model.last"):
        pairs = {name: name.replace(".alias", ".deep") for name in found if name.startswith(f"{prefix}.alias")}
        wrong += [name for name, twin in pairs.items() if not torch.equal(found[name], tensors[twin])]
        wrong += [] if pairs else [prefix]
    other = build(Setup("zero", 2, stage=1), make=Backwards, seed=6)
    restore(other, checkpoint)
    renamed = {name.replace(".alias", ".deep"): one for name, one in whole(saved(other, 2)).items()}
    return wrong + unequal(renamed, tensors)


def test_E28_E104_E105_E108_fault_42_tied_and_reordered_parameters_are_found_by_name(rank_pools: RankPools) -> None:
    nothing(rank_pools.of(4).run(retie))


def shard_in_a_group(rank: int, world_size: int) -> list[str]:
    """Ranks 1 and 3 alone: every rank number is one of the group's."""
    group = dist.new_group([1, 3])
    if rank not in (1, 3):
        return []
    results: list[MemoryCheckpoint] = []
    for is_loaded in (False, True):
        model = Model(seed=len(results))
        optimizer = ShardedOptimizer(model, torch.optim.AdamW, stage=3, persistent_elements=0, group=group, lr=2**-6)
        one = Trained(Setup("zero", 2), model, optimizer)
        if is_loaded:
            one.state.restore(results[0], rank=dist.get_rank(group), world_size=2)
        else:
            one.train(range(2))
        found: list[Any] = [None, None]
        dist.all_gather_object(found, save(one.state.capture()), group=group)
        results.append(MemoryCheckpoint(found))
    return unequal(whole(results[1]), whole(results[0]))


def test_fault_36_and_45_ranks_are_those_of_the_group(rank_pools: RankPools) -> None:
    nothing(rank_pools.of(4).run(shard_in_a_group))


def train_adapters(rank: int, world_size: int) -> tuple[int, int]:
    """Elements of masters and state on this rank where nearly all is frozen, one whole group of it."""
    model = Odd({"base": (1000, 10), "adapter": (40,)}, seed=1).to(BF16)
    model.get_parameter("base").requires_grad_(False)
    model.unused = {"base"}
    groups = [{"params": [model.get_parameter("base")]}, {"params": [model.get_parameter("adapter")]}]
    optimizer = ShardedOptimizer(model, torch.optim.AdamW, params=groups, stage=2, lr=2**-6)
    one = Trained(Setup("zero", world_size), model, optimizer)
    one.train(range(2))
    of_base = list(optimizer.state_parts(model.get_parameter("base")))
    return len(of_base), sum(tensor.numel() for tensor in whole(saved(one, world_size)).values())


def test_fault_50_frozen_parameters_have_neither_masters_nor_state(rank_pools: RankPools) -> None:
    adapter_with_state = 40 * 4 + 1

    assert rank_pools.of(4).run(train_adapters) == [(0, 10_000 + adapter_with_state)] * 4
