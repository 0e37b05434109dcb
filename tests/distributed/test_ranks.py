from __future__ import annotations

import itertools
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import shardkeep as sk
from shardkeep.format.segments import SliceKind
from shardkeep.store.checkpoint import Checkpoint
from shardkeep.store.connect import Client
from tests.distributed import scenarios
from tests.distributed.launcher import RankPools, Ranks
from tests.service_process import ServiceProcess
from tests.waiting import wait_until

_numbers = itertools.count()


@pytest.fixture(scope="module")
def client(shared_service: ServiceProcess) -> Iterator[Client]:
    with sk.connect(shared_service.url, shared_service.token) as connected:
        yield connected


@pytest.fixture
def run() -> str:
    return f"ranks/run-{next(_numbers)}"


def latest(client: Client, run: str) -> Checkpoint:
    found = client.run(run).latest()
    assert found is not None
    return found


def committed_steps(client: Client, run: str) -> list[int]:
    return [item.step for item in client.run(run).checkpoints(state="committed")]


def copies(checkpoint: Checkpoint, *, witness: bool) -> Counter[tuple[str, tuple[int, ...]]]:
    """How many ranks store (or witness) each region of parameters and optimizer state."""
    return Counter(
        (item.name, item.region.offsets)
        for rank in range(checkpoint.info.world_size)
        for item in checkpoint.manifest(rank).slices()
        if item.witness is witness and item.region.volume and item.kind is not SliceKind.BUFFER
    )


def wait_for(*paths: Path) -> None:
    wait_until(lambda: all(path.exists() for path in paths))


@pytest.mark.parametrize(("layout", "world"), [("ddp", 2), ("hsdp", 4)])
def test_E13_E72_a_resumed_model_trains_on_as_if_nothing_had_happened(
    pools: RankPools, client: Client, run: str, layout: str, world: int
) -> None:
    ranks = pools.of(world).run(scenarios.save_and_resume, run=run, layout=layout)

    for each in ranks:
        assert each["resumed"]["verdict"] == "exact", each["resumed"]["reasons"]
        assert each["resumed"]["losses"] == each["went_on"]["losses"][3:]
        assert each["resumed"]["digest"] == each["went_on"]["digest"]
    checkpoint = latest(client, run)
    assert set(copies(checkpoint, witness=False).values()) == {1}, "each byte is written once"
    assert copies(checkpoint, witness=True) == copies(checkpoint, witness=False), "and compared with the replica's"


def test_a_checkpoint_is_resumed_on_any_number_of_ranks_and_layout(pools: RankPools, run: str) -> None:
    (saved, _) = pools.of(2).run(scenarios.train_or_resume, run=run, layout="fsdp", save=True)

    for world, layout in ((4, "hsdp"), (1, "plain"), (2, "fsdp")):
        for each in pools.of(world).run(scenarios.train_or_resume, run=run, layout=layout, save=False):
            assert each["whole"] == saved["whole"]
            assert each["position"] == saved["position"]
            assert each["step"] == 3
            assert each["verdict"] == ("exact" if world == 2 else "inexact")
            assert (f"world size was 2 and is {world}" in each["reasons"]) == (world != 2)


def test_batch_norm_statistics_that_differ_by_rank_are_kept_for_each_and_reported(
    pools: RankPools, client: Client, run: str
) -> None:
    first, second = pools.of(2).run(scenarios.save_and_resume, run=run, layout="ddp")

    name = "module.1.running_mean"
    assert first["buffers"][name] != second["buffers"][name]
    assert first["restored_buffers"] == first["buffers"]
    assert second["restored_buffers"] == second["buffers"]
    report = latest(client, run).info.report
    assert report is not None
    assert "model.1.running_mean" in report.divergent_buffers


def test_pipeline_stages_with_names_of_their_own_share_the_work_of_their_replicas(
    pools: RankPools, client: Client, run: str
) -> None:
    ranks = pools.of(4).run(scenarios.save_stages, run=run)

    assert ranks == [{"equal": True, "verdict": "exact"}] * 4
    checkpoint = latest(client, run)
    assert {name.split(".")[0] for name, _ in copies(checkpoint, witness=False)} == {
        "stage0",
        "stage1",
        "optimizer0",
        "optimizer1",
    }
    assert set(copies(checkpoint, witness=False).values()) == {1}


def test_a_replica_that_diverged_refuses_the_save_naming_tensor_and_ranks(
    pools: RankPools, client: Client, run: str
) -> None:
    for said in pools.of(2).run(scenarios.diverge, run=run):
        assert said.startswith("ReplicasDiverged")
        assert "model.3.weight" in said
        assert "ranks 0, 1" in said
        assert "model.0.weight" not in said
    assert committed_steps(client, run) == [6]


def test_E169_a_plain_tensor_that_differs_is_refused_or_kept_per_rank_as_declared(
    pools: RankPools, client: Client, run: str
) -> None:
    refused = pools.of(2).run(scenarios.keep_a_plain_tensor_that_differs, run=run, per_rank=False)
    kept = pools.of(2).run(scenarios.keep_a_plain_tensor_that_differs, run=f"{run}-own", per_rank=True)

    assert all(said.startswith("ReplicasDiverged") and "stage" in said for said in refused)
    assert kept == [0, 1]


def test_E65_data_registered_on_one_rank_only_refuses_the_save_everywhere(
    pools: RankPools, client: Client, run: str
) -> None:
    for said in pools.of(4).run(scenarios.register_data_on_rank_0_only, run=run):
        assert all("'data' is registered on 1 of 4 ranks" in each for each in said), said
    assert committed_steps(client, run) == []


def test_E16_ranks_at_different_steps_make_no_checkpoint(pools: RankPools, client: Client, run: str) -> None:
    said = pools.of(2).run(scenarios.save_different_steps, run=run)
    assert "committed" not in said
    assert any("100" in each and "90" in each for each in said), said
    assert committed_steps(client, run) == []


def test_a_rank_that_cannot_take_part_ends_the_save_at_once_and_the_next_is_made(
    pools: RankPools, client: Client, run: str
) -> None:
    for each in pools.of(2).run(scenarios.fail_on_one_rank, run=run):
        assert [said == "committed" for said in each["outcomes"]] == [True, True, False, True, False, True]
        assert "loop.n" in each["outcomes"][2]
        assert each["seconds"] < 80, "nobody waited for a lease to lapse"
    assert committed_steps(client, run) == [6, 4, 2, 1]


def test_state_that_appears_on_one_rank_only_keeps_nobody_waiting(pools: RankPools, client: Client, run: str) -> None:
    for each in pools.of(2).run(scenarios.let_an_expert_wake_up_late, run=run):
        assert each == {"outcomes": ["committed"] * 6, "restored": True}


def test_E64_E76_E78_per_rank_state_comes_back_to_its_rank_or_is_reported(
    pools: RankPools, client: Client, run: str, tmp_path: Path
) -> None:
    saved = pools.of(2).run(scenarios.save_per_rank_things, run=run)
    assert len({each["rng"] for each in saved}) == 2

    same = pools.of(2).run(scenarios.resume_per_rank_things, run=run)
    for before, after in zip(saved, same, strict=True):
        assert after["strict"] == ""
        assert {key: after[key] for key in before} == before

    (alone,) = pools.of(1).run(scenarios.resume_per_rank_things, run=run)
    assert "world size was 2 and is 1" in alone["strict"]
    assert (alone["position"], alone["own"], alone["table"]) == ({"yielded": 0}, (-1, 0), 40_000)

    wider = pools.of(4).run(scenarios.resume_per_rank_things, run=run)
    assert len({each["rng"] for each in wider}) == 4, "every rank has a stream of its own"
    assert not {each["rng"] for each in wider} & {each["rng"] for each in saved}
    for each in wider:
        assert "world size was 2 and is 4" in each["strict"]
        assert each["position"] == {"yielded": 0}
        assert (each["own"], each["host"]) == ((-1, 0), "fresh")
        assert (each["table"], each["best"]) == (40_000, 0.25), "what is equal on all ranks comes back on any number"
        for name in ("loader", "own", "differs.host", "random generators"):
            assert any(name in reason for reason in each["reasons"]), (name, each["reasons"])
    again = pools.of(4).run(scenarios.resume_per_rank_things, run=run)
    assert [each["rng"] for each in again] == [each["rng"] for each in wider], "the streams are a function of the seed"


def test_what_one_rank_asks_for_all_do_at_the_same_step(pools: RankPools, client: Client, run: str) -> None:
    first, second = pools.of(2).run(scenarios.request_on_rank_1, run=run)

    assert first == second
    assert [stop for _, stop in first] == [False] * 6 + [True]
    assert committed_steps(client, run) == [7, 4]


def test_E176_polling_ranks_leave_an_evaluation_together(pools: RankPools, client: Client, run: str) -> None:
    first, second = pools.of(2).run(scenarios.poll_in_an_evaluation, run=run)

    assert first == second
    assert first == (6, True)
    assert committed_steps(client, run) == [1]


def test_SIGTERM_on_one_rank_saves_and_stops_all_and_the_resume_is_exact(
    pools: RankPools, client: Client, run: str, tmp_path: Path
) -> None:
    ranks = pools.of(2)
    for launch in range(2):
        directory = tmp_path / str(launch)
        directory.mkdir()
        ranks.start(scenarios.train_until_stopped, run=run, directory=str(directory))
        wait_for(*(directory / f"running-{rank}" for rank in range(2)))
        ranks.send_signal(1 - launch, signal.SIGTERM)
        first, second = ranks.values()
        assert first["step"] == second["step"] == latest(client, run).step
        assert first["failures"] == []
        assert first["verdict"] == second["verdict"] == ("fresh", "exact")[launch]


@pytest.mark.slow
def test_E175_signals_at_any_time_save_only_states_of_step_edges(
    pools: RankPools, client: Client, run: str, tmp_path: Path
) -> None:
    ranks = pools.of(1)
    ranks.start(scenarios.save_on_signals, run=run, directory=str(tmp_path))
    wait_for(tmp_path / "running-0")
    chance = random.Random(0)
    for _ in range(60):
        time.sleep(chance.random() * 0.05)
        ranks.send_signal(0, signal.SIGUSR1)
    wait_until(lambda: committed_steps(client, run))
    ranks.send_signal(0, signal.SIGTERM)
    (result,) = ranks.values()

    assert result["failures"] == 0
    steps = committed_steps(client, run)
    assert steps[0] == result["step"]
    assert len(steps) > 1
    for summary in client.run(run).checkpoints(state="committed"):
        checkpoint = client.checkpoint(summary.id)
        for name in ("first", "second"):
            value: Any = checkpoint.tensor(name)[...]
            assert torch.all(value == summary.step)


def test_E20_a_launch_killed_in_a_save_is_followed_by_one_that_saves_the_step_again(
    shared_service: ServiceProcess, client: Client, run: str, tmp_path: Path
) -> None:
    with Ranks(2, directory=tmp_path, env=shared_service.environment()) as killed:
        killed.start(scenarios.die_while_saving, run=run)
        wait_until(lambda: killed.exit_codes()[1] is not None and list(client.run(run).checkpoints(step=40)))
        killed.kill()
    with Ranks(2, directory=tmp_path, env=shared_service.environment()) as again:
        assert again.run(scenarios.resume_and_save, run=run, step=40) == [(20, "committed", [])] * 2
    assert committed_steps(client, run) == [40, 20, 10, 5]
