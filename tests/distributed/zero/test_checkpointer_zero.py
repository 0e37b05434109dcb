"""The sharded optimizer in a Checkpointer, at a real service: saved on some ranks at one stage, resumed on others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import shardkeep.pytorch as skt
from shardkeep.pytorch.capture import Capture, TrainingState
from shardkeep.zero import ShardedOptimizer
from tests.distributed.launcher import RankPools
from tests.distributed.zero.setups import Model
from tests.service_process import ServiceProcess

BF16 = torch.bfloat16
_numbers = itertools.count()


@pytest.fixture(scope="module")
def pools(shared_service: ServiceProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPools]:
    """Launches that know the service."""
    started = RankPools(directory=tmp_path_factory.mktemp("keepers"), env=shared_service.environment())
    yield started
    started.close()


@pytest.fixture
def run() -> str:
    return f"zero/run-{next(_numbers)}"


def make(stage: int | None, dtype: torch.dtype, **options: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Model(dtype, seed=int(torch.initial_seed() % 97))
    given = {"lr": 2**-6, "fused": True, **options}
    if stage is None:
        return model, torch.optim.AdamW(model.parameters(), **given)
    sharded: Any = ShardedOptimizer
    optimizer = sharded(model, torch.optim.AdamW, stage=stage, bucket_mb=0.0001, persistent_elements=10, **given)
    return model, optimizer


def train(model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any, steps: range) -> list[float]:
    """The learning rates that were used."""
    rates = []
    for step in steps:
        optimizer.zero_grad()
        model(step).backward()
        optimizer.step()
        rates.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
    return rates


def go_on(
    rank: int,
    world_size: int,
    *,
    run: str,
    stage: int | None,
    dtype: torch.dtype,
    until: int,
    save: int | None = None,
    cast: bool = False,
    offload: str | None = None,
) -> dict[str, Any]:
    """Resume, train to `until`, saving after step `save`: what it came to."""
    torch.manual_seed(40 + world_size)
    model, optimizer = make(stage, dtype, **({"offload": offload} if stage is not None else {}))
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=16)
    with skt.Checkpointer(run, model=model, optimizer=optimizer, scheduler=scheduler, signals=False) as keeper:
        start = keeper.resume(cast=cast)
        middle = until if save is None else save
        rates = train(model, optimizer, scheduler, range(start, middle))
        if save is not None:
            keeper.save(save)
            keeper.wait()
        rates += train(model, optimizer, scheduler, range(middle, until))
    assert keeper.resumed is not None
    return {
        "weights": {name: one.float() for name, one in model.state_dict().items()},
        "rates": rates,
        "reasons": list(keeper.resumed.reasons),
        "verdict": keeper.resumed.verdict,
    }


def weights_differ(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [name for name, found in one["weights"].items() if not torch.equal(found, other["weights"][name])]


def test_E31_saved_at_stage_2_on_2_ranks_resumes_at_stage_3_on_3_and_plain_on_1(pools: RankPools, run: str) -> None:
    went_on = pools.of(2).run(go_on, run=run, stage=2, dtype=torch.float32, until=5, save=3)[0]

    for world, stage in ((3, 3), (1, None)):
        for each in pools.of(world).run(go_on, run=run, stage=stage, dtype=torch.float32, until=5):
            assert not weights_differ(each, went_on)
            assert each["rates"] == went_on["rates"][3:]
            assert each["verdict"] == "inexact"
            assert each["reasons"] == [
                f"world size was 2 and is {world}",
                "random generators start anew from (seed, step, rank) on another world size",
            ]


def test_E46_E53_a_bf16_run_that_was_interrupted_is_the_one_that_was_not(pools: RankPools, run: str) -> None:
    whole = pools.of(2).run(go_on, run=f"{run}-whole", stage=1, dtype=BF16, until=16, save=8)
    pools.of(2).run(go_on, run=run, stage=1, dtype=BF16, until=8, save=8)

    again = pools.of(2).run(go_on, run=run, stage=1, dtype=BF16, until=16)

    for one, other in zip(again, whole, strict=True):
        assert (one["verdict"], one["reasons"]) == ("exact", [])
        assert not weights_differ(one, other)
        assert one["rates"] == other["rates"][8:]


def test_E44_a_bf16_run_resumes_in_fp32_from_its_masters_and_says_so(pools: RankPools, run: str) -> None:
    went_on = pools.of(2).run(go_on, run=run, stage=3, dtype=BF16, until=5, save=3, offload="cpu")[0]

    plain = pools.of(1).run(go_on, run=run, stage=None, dtype=torch.float32, until=5, cast=True)[0]
    rounded = pools.of(1).run(go_on, run=run, stage=None, dtype=BF16, until=3)[0]

    rounded_weights = {name: one.bfloat16().float() for name, one in plain["weights"].items()}
    assert not weights_differ({"weights": rounded_weights}, went_on)
    assert [one for one in plain["reasons"] if "cast=True" in one]
    assert (
        "optimizer keeps no float32 masters here: they and their state were rounded to bfloat16" in rounded["reasons"]
    )


def load_weights_alone(rank: int, world_size: int, *, run: str, stage: int) -> bool:
    """Into a model that is trained: its masters follow."""
    torch.manual_seed(7)
    model, optimizer = make(stage, BF16)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=16)
    train(model, optimizer, scheduler, range(1))
    optimizer.param_groups[0]["lr"] = 0.0
    with skt.Checkpointer(run, model=model, signals=False, rng=False) as keeper:
        keeper.resume()
        before = {name: one.clone() for name, one in model.state_dict().items()}
        optimizer.zero_grad()
        model(1).backward()
        optimizer.step()
    after = model.state_dict()
    return all(torch.equal(one, after[name]) for name, one in before.items())


def test_fault_54_weights_that_are_loaded_alone_are_not_overwritten_by_old_masters(pools: RankPools, run: str) -> None:
    pools.of(2).run(go_on, run=run, stage=2, dtype=BF16, until=3, save=3)

    for stage in (1, 2, 3):
        assert pools.of(2).run(load_weights_alone, run=run, stage=stage) == [True, True]


def save_while_others_are_away(rank: int, world_size: int) -> list[str]:
    """Rank 0 alone takes its state apart: no collective may run. Its tensors are the live memory."""
    told: list[str] = []
    for stage in (1, 2, 3):
        model, optimizer = make(stage, BF16)
        model(0).backward()
        optimizer.step()
        if rank == 0:
            state = TrainingState({"model": model, "optimizer": optimizer})
            first, second = state.capture(), state.capture()
            told += [] if storages_of(first) == storages_of(second) else [f"stage {stage}: a capture copies"]
        dist.barrier()
    return told


def storages_of(captured: Capture) -> set[int]:
    """The memory that a capture refers to."""
    return {piece.tensor.untyped_storage().data_ptr() for tensor in captured.tensors for piece in tensor.pieces}


def test_a_capture_copies_nothing_and_runs_no_collective(pools: RankPools) -> None:
    assert pools.of(2).run(save_while_others_are_away) == [[], []]


def save_at_once(rank: int, world_size: int, *, run: str, times: int) -> list[str]:
    """Both ranks of one host, with state on the host, save at the same moment, again and again."""
    model, optimizer = make(3, torch.float32, offload="cpu")
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=16)
    with skt.Checkpointer(run, model=model, optimizer=optimizer, signals=False) as keeper:
        for step in range(times):
            train(model, optimizer, scheduler, range(step, step + 1))
            dist.barrier()
            keeper.save(step + 1)
        keeper.wait()
    return [str(failed.error) for failed in keeper.failures]


def test_E51_ranks_of_one_host_that_save_offloaded_state_at_once_do_not_meet(pools: RankPools, run: str) -> None:
    assert pools.of(2).run(save_at_once, run=run, times=8) == [[], []]
