"""What an optimizer may be built on, when, and over which ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_module
from torch.nn.parallel import DistributedDataParallel

from shardkeep.errors import ConfigurationError
from shardkeep.zero import ShardedOptimizer
from tests.distributed.launcher import RankPools
from tests.distributed.zero.oracle import Plan, Tiny, differences, own_state, sharded, tiny_batch, unsharded

OPTIONS: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.1}
STAGES: list[Any] = [1, 2, 3]


def shard(model: nn.Module, stage: Any, **options: Any) -> ShardedOptimizer:
    """With buckets and units that are small."""
    given = {"bucket_mb": 0.0003, "persistent_elements": 20, **OPTIONS, **options}
    return ShardedOptimizer(model, torch.optim.AdamW, stage=stage, **given)


def refuse_wrapped(_rank: int, world_size: int) -> None:
    mesh = init_device_mesh("cpu", (world_size,))
    sharded_model = Tiny()
    fully_shard(sharded_model.first, mesh=mesh)
    distributed = distribute_module(Tiny(), mesh, lambda *_: None)
    wrapped = nn.Sequential(DistributedDataParallel(Tiny()))
    for model, message in (
        (wrapped, "0 is wrapped in Dist"),
        (sharded_model, "first is wrapped"),
        (distributed, "DTensor"),
    ):
        for stage in STAGES:
            with pytest.raises(ConfigurationError, match=message):
                shard(model, stage)


def test_fault_58_models_that_something_else_reduces_or_shards_are_errors(rank_pools: RankPools) -> None:
    """DistributedDataParallel, fully_shard and DTensor parameters (fault 58: beside plain ones too)."""
    rank_pools.of(2).run(refuse_wrapped)


def differ_at_first(rank: int, _world_size: int) -> list[str]:
    """Parameters, in groups and not, and buffers."""
    told = []
    for stage in STAGES:
        torch.manual_seed(0)
        last = nn.Linear(3, 3)
        model = nn.Sequential(Tiny(), nn.BatchNorm1d(3), last)
        wanted = {name: one.clone() for name, one in model.state_dict().items()}
        with torch.no_grad():
            last.weight = nn.Parameter(last.weight.t())  # of strides that are not row-major
            wanted["2.weight"] = last.weight.detach().clone()
            for one in (*model.parameters(), *model.buffers()):
                one.add_(rank)
        shard(model, stage, params=model[0].parameters())
        told += [f"stage {stage}: {name}" for name, one in model.state_dict().items() if not one.equal(wanted[name])]
    return told


def test_parameters_and_buffers_become_those_of_rank_0(rank_pools: RankPools) -> None:
    assert rank_pools.of(2).run(differ_at_first) == [[], []]


def build_late(rank: int, world_size: int) -> list[str]:
    """After a forward, a backward, and with a graph that still lives; with marks on the parameters."""
    told = []
    for inner, options in ((torch.optim.AdamW, OPTIONS), (torch.optim.Adagrad, {"lr": 1e-2})):
        wanted = unsharded(Tiny, inner, options, Plan(), world_size)
        for stage in STAGES:
            model = Tiny()
            graph = model(tiny_batch(9, 9, rank))
            model(tiny_batch(9, 9, rank)).sum().backward()
            model.zero_grad()
            model.scale.is_special = True  # type: ignore[attr-defined]
            known = [id(one) for one in model.parameters()]
            optimizer = ShardedOptimizer(model, inner, stage=stage, bucket_mb=0.0003, persistent_elements=20, **options)
            found = differences(sharded(model, optimizer, Plan(), rank), wanted)
            told += [f"{inner}, stage {stage}: {one}" for one in found]
            assert known == [id(one) for one in model.parameters()]
            assert model.scale.is_special  # type: ignore[attr-defined]
            del graph
    return told


def test_fault_57_an_optimizer_built_after_a_forward_updates_the_parameters(rank_pools: RankPools) -> None:
    """Also one whose state is made at construction; parameters stay the objects they are, with what hangs on them."""
    assert rank_pools.of(2).run(build_late) == [[], []]


def build_on_graph(rank: int, world_size: int) -> list[str]:
    """Parameters that were computed: their data has a history, and a graph has saved them."""
    told = []
    wanted = unsharded(Tiny, torch.optim.AdamW, OPTIONS, Plan(), world_size)
    for stage in STAGES:
        model = Tiny()
        with torch.enable_grad():
            for one in model.parameters():
                one.data = (one * 2 / 2).detach().view(one.shape)
        optimizer = shard(model, stage)
        told += differences(sharded(model, optimizer, Plan(), rank), wanted)
        assert all(one.grad_fn is None and one.is_leaf for one in model.parameters())
    return told


def test_fault_22_parameters_with_a_history_become_leaves_of_the_flat_memory(rank_pools: RankPools) -> None:
    assert rank_pools.of(2).run(build_on_graph) == [[], []]


def train_group(rank: int, _world_size: int) -> list[str]:
    """Two ranks of three train; their ranks in the group are not their ranks in the world."""
    group = dist.new_group([1, 2])
    if rank == 0:
        return []
    told = []
    assert isinstance(group, dist.ProcessGroup)
    wanted = unsharded(Tiny, torch.optim.AdamW, OPTIONS, Plan(), 2)
    for stage in STAGES:
        for layout in ("flat", "whole"):
            model = Tiny()
            optimizer = shard(model, stage, layout=layout, group=group)
            found = differences(sharded(model, optimizer, Plan(), rank - 1), wanted)
            told += [f"stage {stage}, {layout}: {one}" for one in found]
    return told


def test_fault_35_and_36_a_group_that_is_not_the_world_trains_by_its_own_ranks(rank_pools: RankPools) -> None:
    """Also fault 35: each rank steps its own slice, not rank 0's."""
    assert rank_pools.of(3).run(train_group) == [[], [], []]


class Odd(nn.Module):
    """Parameters of which most ranks own nothing: 0-d, one element, none at all."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.nothing = nn.Parameter(torch.empty(0, 7))
        self.one = nn.Parameter(torch.randn(1))
        self.last = nn.Linear(7, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(x * self.scale) * self.one + self.nothing.sum()


def own_little(rank: int, world_size: int) -> list[str]:
    told = []
    wanted = unsharded(Odd, torch.optim.AdamW, OPTIONS, Plan(), world_size)
    for stage in STAGES:
        for layout in ("flat", "whole"):
            for bucket_mb in (0.00001, 25):
                model = Odd()
                optimizer = shard(model, stage, layout=layout, bucket_mb=bucket_mb, persistent_elements=0)
                outcome = sharded(model, optimizer, Plan(), rank)
                told += [f"stage {stage}, {layout}: {one}" for one in differences(outcome, wanted)]
                found = own_state(optimizer, {})
                sizes = {name: one["master"].numel() for name, one in found.items()}
                assert "nothing" not in sizes, "a slice without elements is none"
                assert all(sizes.values())
                counts: list[Any] = [None] * world_size
                dist.all_gather_object(counts, sizes)
                for name, parameter in model.named_parameters():
                    owned = sum(each.get(name, 0) for each in counts)
                    assert owned == parameter.numel(), f"{name} has {owned} elements of state, padding too"
    return told


def test_fault_34_and_37_and_38_state_has_the_elements_of_parameters_and_no_padding(rank_pools: RankPools) -> None:
    """Slices without elements are nobody's (faults 37 and 38): no rank has state for them, none steps them."""
    assert rank_pools.of(3).run(own_little) == [[], [], []]


def share_parameter(_rank: int, _world_size: int) -> None:
    model = Tiny()
    optimizer = shard(model, 3, persistent_elements=0)
    with pytest.raises(ConfigurationError, match="close"):
        shard(model, 3)
    optimizer.close()
    shard(model, 3)
    with pytest.raises(ConfigurationError, match="not one of the model's"):
        shard(Tiny(), 2, params=Tiny().parameters())


def test_a_parameter_is_in_one_optimizer(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(share_parameter)


def build_differently(rank: int, _world_size: int) -> None:
    """Other shapes, other names, another order, other options: each would send parts of one to another."""
    swapped = nn.ModuleDict(
        {"a": nn.Linear(3, 4), "b": nn.Linear(3, 4)} if rank else {"b": nn.Linear(3, 4), "a": nn.Linear(3, 4)}
    )
    for stage in STAGES:
        for make in (
            lambda: nn.Linear(3, 4 + rank),
            lambda: swapped,
            lambda: nn.Linear(3, 4).requires_grad_(requires_grad=rank == 0),
            lambda: nn.Linear(3, 4).to(torch.bfloat16 if rank else torch.float32),
        ):
            with pytest.raises(ConfigurationError, match="rank 0"):
                shard(make(), stage)
        with pytest.raises(ConfigurationError, match="rank 0"):
            shard(nn.Linear(3, 4), stage, bucket_mb=1 + rank)


def test_ranks_that_build_other_models_are_told_at_construction(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(build_differently)
