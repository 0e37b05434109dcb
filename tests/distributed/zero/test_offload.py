"""Offload in real ranks: bit-equal to the oracle, saved and loaded like state in memory, and gone when a rank is."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from shardkeep.errors import ConfigurationError
from shardkeep.pytorch.capture import TrainingState
from shardkeep.zero import NvmeOffload, ShardedOptimizer
from tests.distributed.launcher import RankPools, Ranks
from tests.distributed.zero.oracle import (
    Plan,
    Tensors,
    differences,
    sharded,
    tiny_losses,
    unsharded,
    whole_parameters,
    whole_state,
)
from tests.unit.pytorch.memory_checkpoint import MemoryCheckpoint
from tests.unit.pytorch.ranks import save_all

OPTIONS: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.1}
BUDGET = 120_000
PLANS = [
    Plan(max_norms=(None, 0.3, None)),
    Plan(max_norms=(0.3, None), micro_batches=2, backwards=2),
    Plan(max_norms=(None, 0.3), micro_batches=3, defers=True),
]


class Wide(nn.Module):
    """As `Tiny`, with a layer of several tiles on each of two ranks."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(7, 61)
        self.middle = nn.Linear(61, 61)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.last = nn.Linear(61, 3)
        self.to(dtype)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.middle(torch.tanh(self.first(batch))))
        output: torch.Tensor = self.last(hidden * self.scale)
        return output


def build(model: nn.Module, stage: Any, offload: Any, **options: Any) -> ShardedOptimizer:
    return ShardedOptimizer(
        model,
        options.pop("inner", torch.optim.AdamW),
        stage=stage,
        offload=offload,
        bucket_mb=0.01,
        persistent_elements=20,
        **{**OPTIONS, **options},
    )


def train_on_nvme(rank: int, world_size: int, *, scratch: Path, plan: Plan, dtype: torch.dtype) -> list[str]:
    """What is not the oracle's, of every stage and layout."""
    wrong = []
    wanted = unsharded(partial(Wide, dtype), torch.optim.AdamW, OPTIONS, plan, world_size)
    for stage, layout in itertools.product((1, 2, 3), ("flat", "whole")):
        model = Wide(dtype)
        budget = BUDGET if layout == "flat" else 2 * BUDGET
        optimizer = build(model, stage, NvmeOffload(scratch, budget), layout=layout)
        found = differences(sharded(model, optimizer, plan, rank), wanted)
        assert list(scratch.iterdir()) == []
        optimizer.close()
        if found:
            wrong.append(f"stage {stage}, {layout}: {'; '.join(found)}")
    return wrong


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    made = tmp_path / "scratch"
    made.mkdir()
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("world_size", "plan"),
    [(1, PLANS[1]), *((2, plan) for plan in PLANS)],
    ids=["alone", "plain", "accumulated", "deferred"],
)
def test_training_on_nvme_is_bit_equal_to_the_unsharded_optimizer(
    rank_pools: RankPools, scratch: Path, world_size: int, plan: Plan, dtype: torch.dtype
) -> None:
    wrong = rank_pools.of(world_size).run(train_on_nvme, scratch=scratch, plan=plan, dtype=dtype)

    assert not [each for of_rank in wrong for each in of_rank]


# --- saving and loading -----------------------------------------------------------------------------------------------


def train_and_save(
    rank: int, world_size: int, *, stage: int, scratch: Path | None, dtype: torch.dtype
) -> tuple[MemoryCheckpoint, Tensors]:
    """A checkpoint after two steps, and what two more came to."""
    model = Wide(dtype)
    optimizer = build(model, stage, None if scratch is None else NvmeOffload(scratch, BUDGET))
    sharded(model, optimizer, Plan(max_norms=(None, 0.3)), rank)
    saved = save_all(TrainingState({"model": model, "optimizer": optimizer}))
    outcome = two_steps(model, optimizer)
    optimizer.close()
    return saved, outcome


def load_and_train(
    rank: int, world_size: int, *, saved: MemoryCheckpoint, stage: int, scratch: Path | None, dtype: torch.dtype
) -> tuple[MemoryCheckpoint, Tensors]:
    """What is saved at once after it was loaded, and what two steps came to."""
    model = Wide(dtype)
    optimizer = build(model, stage, None if scratch is None else NvmeOffload(scratch, BUDGET))
    sharded(model, optimizer, Plan(max_norms=(None,)), rank)
    state = TrainingState({"model": model, "optimizer": optimizer})
    state.restore(saved, rank=rank, world_size=world_size)
    again = save_all(state)
    outcome = two_steps(model, optimizer)
    optimizer.close()
    return again, outcome


def two_steps(model: nn.Module, optimizer: ShardedOptimizer) -> Tensors:
    """The same on every rank, so that the number of ranks does not matter; all parameters and state after it."""
    for step in (7, 8):
        optimizer.zero_grad()
        tiny_losses(model, step, 0, 0, 1)[0].backward()
        optimizer.step()
    state = {f"{name}.{key}": one for name, of in whole_state(optimizer).items() for key, one in of.items()}
    return {**whole_parameters(model, optimizer), **state}


def contents(saved: MemoryCheckpoint) -> dict[str, bytes]:
    return {one.name: saved.tensor_bytes(one.name) for one in saved.tensors()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("source", "target"),
    [((3, 2, True), (2, 1, False)), ((2, 1, False), (3, 2, True)), ((1, 2, True), (3, 1, True))],
    ids=["nvme-to-memory", "memory-to-nvme", "nvme-to-nvme"],
)
def test_state_on_nvme_saves_and_loads_bit_equal_whatever_the_stage_and_world(
    rank_pools: RankPools,
    scratch: Path,
    source: tuple[int, int, bool],
    target: tuple[int, int, bool],
    dtype: torch.dtype,
) -> None:
    def where(on_nvme: bool) -> Path | None:
        return scratch if on_nvme else None

    stage, world_size, on_nvme = source
    saved, wanted = rank_pools.of(world_size).run(train_and_save, stage=stage, scratch=where(on_nvme), dtype=dtype)[0]
    stage, world_size, on_nvme = target
    again, found = rank_pools.of(world_size).run(
        load_and_train, saved=saved, stage=stage, scratch=where(on_nvme), dtype=dtype
    )[0]

    assert contents(again) == contents(saved)
    assert found.keys() == wanted.keys()
    assert not [name for name in wanted if not torch.equal(found[name], wanted[name])]


def restart(
    rank: int, world_size: int, *, saved: MemoryCheckpoint | None, scratch: Path, attempt: int
) -> tuple[MemoryCheckpoint, int, dict[str, torch.Tensor]]:
    """One attempt of a run: loads, trains a step and saves; also the bytes of disk it takes, and the weights."""
    model = Wide()
    optimizer = build(model, 3, NvmeOffload(scratch, BUDGET))
    state = TrainingState({"model": model, "optimizer": optimizer})
    if saved is not None:
        state.restore(saved, rank=rank, world_size=world_size)
        saved.requests.clear()  # or it would keep what was read for it
    optimizer.zero_grad()
    tiny_losses(model, attempt, 0, rank, 1)[0].backward()
    optimizer.step()
    again, used = save_all(state), disk_bytes(scratch)
    return again, used, whole_parameters(model, optimizer)


def disk_bytes(scratch: Path) -> int:
    """Of all files in the directory that this process has open, named or not."""
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        link = Path("/proc/self/fd") / name
        if link.is_symlink() and str(link.readlink()).startswith(str(scratch)):
            status = link.stat()
            found[status.st_ino] = status.st_size  # all allocated; blocks also count how the file system keeps them
    return sum(found.values())


def test_E50_restarts_find_offloaded_state_by_name_and_scratch_files_do_not_grow(tmp_path: Path, scratch: Path) -> None:
    saved, used = None, []
    for attempt in range(5):
        with Ranks(1, directory=tmp_path) as ranks:
            values = ranks.run(restart, saved=saved, scratch=scratch, attempt=attempt)
        saved, bytes_of_disk, parameters = values[0]
        used.append(bytes_of_disk)
        assert list(scratch.iterdir()) == []
    plan = Plan(max_norms=(None,) * 5)
    wanted = unsharded(Wide, torch.optim.AdamW, OPTIONS, plan, 1)

    assert all(torch.equal(parameters[name], wanted.parameters[name]) for name in wanted.parameters)
    assert max(used[2:]) <= used[1]  # what a restart left behind would be as much again
    assert 0 < used[1] < 2 * used[0]


# --- failures ---------------------------------------------------------------------------------------------------------


def die_in_a_step(rank: int, world_size: int, *, scratch: Path, writes: int) -> None:
    """Killed by nobody's leave, while tiles are written."""
    model = Wide()
    optimizer = build(model, 2, NvmeOffload(scratch, BUDGET))
    sharded(model, optimizer, Plan(max_norms=(None,)), rank)
    tiny_losses(model, 3, 0, rank, 1)[0].backward()
    left, write = [writes], os.pwritev

    def deadly(fd: int, views: Sequence[memoryview], offset: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(fd, views, offset)

    os.pwritev = deadly  # type: ignore[assignment]
    optimizer.step()


def test_ranks_killed_in_a_step_leave_no_file(tmp_path: Path, scratch: Path) -> None:
    with Ranks(2, directory=tmp_path) as ranks:
        ranks.start(die_in_a_step, scratch=scratch, writes=1)
        ranks.results()
        ranks.kill()
        codes = ranks.exit_codes()

    assert codes == [-signal.SIGKILL, -signal.SIGKILL]
    assert list(scratch.iterdir()) == []


def build_without_directory(rank: int, world_size: int, *, scratch: Path) -> str:
    """Only the last rank has none."""
    try:
        build(Wide(), 2, NvmeOffload(scratch / "none" if rank == world_size - 1 else scratch, BUDGET))
    except ConfigurationError as exc:
        return str(exc)
    return "built"


def test_a_directory_that_one_rank_lacks_is_said_by_every_rank(rank_pools: RankPools, scratch: Path) -> None:
    messages = rank_pools.of(2).run(build_without_directory, scratch=scratch)

    assert "does not exist on the host of rank 1" in messages[1]
    assert messages[0] == "ranks 1 have no scratch file; their own errors say why"


def train_with(rank: int, world_size: int, *, options: dict[str, Any]) -> list[str]:
    """Masters, gradients and state in the host's memory."""
    wrong = []
    for dtype, stage in itertools.product((torch.float32, torch.bfloat16), (1, 2, 3)):
        wanted = unsharded(partial(Wide, dtype), torch.optim.AdamW, OPTIONS, PLANS[1], world_size)
        model = Wide(dtype)
        optimizer = build(model, stage, "cpu", **options)
        wrong += differences(sharded(model, optimizer, PLANS[1], rank), wanted)
        optimizer.close()
    return wrong


def test_offload_to_the_cpu_is_bit_equal_to_the_unsharded_optimizer(rank_pools: RankPools) -> None:
    wrong = rank_pools.of(2).run(train_with, options={"layout": "flat"})

    assert not [each for of_rank in wrong for each in of_rank]


def test_fault_51_ranks_that_save_at_once_share_no_file(rank_pools: RankPools, scratch: Path) -> None:
    values = rank_pools.of(2).run(save_often, scratch=scratch)

    assert values == [True, True]


def save_often(rank: int, world_size: int, *, scratch: Path) -> bool:
    """Whether every save of one state was the same."""
    model = Wide()
    optimizer = build(model, 3, NvmeOffload(scratch, BUDGET))
    sharded(model, optimizer, Plan(max_norms=(None,)), rank)
    state = TrainingState({"model": model, "optimizer": optimizer})
    first = contents(save_all(state))
    dist.barrier()
    same = all(contents(save_all(state)) == first for _ in range(10))
    optimizer.close()
    return same
