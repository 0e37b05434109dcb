"""Saving plain states through a real service: reuse, packing, budget, memory."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import ConfigurationError, NoUsableCheckpoint, SaveFailed
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind
from shardkeep.store.run import Run
from tests.faulty_proxy import FaultyProxy
from tests.service_process import ServiceProcess

PUT_CHUNK = r"PUT /v1/checkpoints/[^/]+/chunks/[0-9a-f]{64}"


def noise(seed: int, size_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, size_bytes, np.uint8)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_saving_into_a_run_with_checkpoints_needs_resume_or_fresh(
    new_run: Callable[[], Run], client: sk.Client
) -> None:
    run = new_run()
    run.save(1, {"w": noise(1, 100)}).wait(60)
    again = client.run(f"{run.project}/{run.name}")
    with pytest.raises(ConfigurationError, match=r"run\.resume\(\).*fresh=True"):
        again.save(2, {"w": noise(1, 100)})
    resumed = again.resume()
    assert resumed is not None
    assert resumed.step == 1
    again.save(2, {"w": noise(1, 100)}).wait(60)

    third = client.run(f"{run.project}/{run.name}")
    third.save(1, {"w": noise(2, 100)}, fresh=True).wait(60)
    latest = third.latest()
    assert latest is not None
    assert latest.step == 1


def test_latest_is_none_only_without_a_committed_checkpoint(run: Run) -> None:
    assert run.resume() is None
    assert run.latest() is None
    run.save(1, {"w": noise(1, 10)}).wait(60)
    assert run.latest() is not None


def test_a_run_whose_only_checkpoint_is_deleted_does_not_resume_fresh(run: Run) -> None:
    run.save(1, {"w": noise(1, 10)}).wait(60).delete()
    with pytest.raises(NoUsableCheckpoint) as caught:
        run.resume()
    assert [item.step for item in caught.value.passed_over] == [1]
    assert run.resume(fresh=True) is None


def test_a_run_that_saving_made_is_logged_as_new(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="shardkeep"):
        run.save(1, {"w": noise(1, 10)}).wait(60)
    assert f"{run.project}/{run.name} is new" in caplog.text


def test_unchanged_segments_are_not_sent_again_also_after_resume(client: sk.Client, run: Run) -> None:
    state = {"frozen": noise(1, 9 << 20), "changing": noise(2, 3 << 20), "step": np.array(0)}
    run.save(1, state).wait(60)
    state["changing"][1 << 20] ^= 1
    state["step"][...] = 1
    second = run.save(2, state).wait(60)
    assert second.info.new_bytes == (1 << 20) + 8

    other = client.run(f"{run.project}/{run.name}")
    other.resume()
    state["frozen"][0] ^= 1
    third = other.save(3, state).wait(60)
    assert third.info.new_bytes == 1 << 20
    target = {key: np.zeros_like(value) for key, value in state.items()}
    third.load_into(target)
    np.testing.assert_equal(target, state)


def test_kinds_are_packed_apart_and_a_changing_scalar_touches_no_big_chunk(run: Run) -> None:
    attempt = run.begin_attempt(sk.World.alone())
    attempt.decide_resume()
    staged = [
        ("weight", SliceKind.PARAMETER, 3 << 20),
        ("frozen", SliceKind.FROZEN, 2 << 20),
        ("momentum", SliceKind.OPTIMIZER, 3 << 20),
        ("step", SliceKind.OPTIMIZER, 4),
        ("bias", SliceKind.PARAMETER, 64),
        ("running_mean", SliceKind.BUFFER, 128),
    ]
    chunks = []
    for step in (1, 2):
        with attempt.start_save(step, expected_bytes=8 << 20) as writer:
            for number, (name, kind, size) in enumerate(staged):
                data = noise(number + (100 * step if name == "step" else 0), size)
                _stage(writer, name, kind, data)
            checkpoint = writer.finish().wait(60)
        chunks.append(
            {record.name: {segment.chunk for segment in record.segments} for record in checkpoint.manifest().slices()}
        )
    first, second = chunks
    assert first["weight"] == first["bias"]
    groups = [first[name] for name in ("weight", "frozen", "momentum", "step", "running_mean")]
    assert len(set.union(*groups)) == 5
    assert {name for name in first if first[name] != second[name]} == {"step"}


def _stage(writer: Any, name: str, kind: SliceKind, data: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    def fill(start: int, out: memoryview) -> None:
        out[:] = data[start : start + out.nbytes].data

    writer.stage(name, "uint8", data.shape, Region.whole(data.shape), kind, fill=fill)


def test_two_ranks_make_one_checkpoint_and_replicas_are_stored_once(shared_service: ServiceProcess) -> None:
    world = [sk.World(rank, 2, "cd" * 16) for rank in range(2)]
    clients = [sk.connect(shared_service.url, shared_service.token) for _ in world]
    states = [{"same": noise(1, 3 << 20), f"own{rank}": noise(rank + 5, 100), "epoch": 3} for rank in range(2)]
    checkpoints: list[sk.Checkpoint] = []

    def save(rank: int) -> None:
        from shardkeep.store.plain_saves import PlainSaver

        attempt = clients[rank].run("pairs/run").begin_attempt(world[rank])
        attempt.decide_resume()
        checkpoints.append(PlainSaver(attempt).save(1, states[rank], {"loss": float(rank)}).wait(60))

    threads = [threading.Thread(target=save, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = checkpoints
    assert first.id == second.id
    assert first.info.new_bytes == (3 << 20) + 200
    target = {
        "same": np.zeros(3 << 20, np.uint8),
        "own0": np.zeros(100, np.uint8),
        "own1": np.zeros(100, np.uint8),
        "epoch": 0,
    }
    first.load_into(target)
    np.testing.assert_equal(target, {**states[0], **states[1]})
    for client in clients:
        client.close()


def test_a_shard_above_the_budget_streams_through_it_and_says_so_once(
    shared_service: ServiceProcess, caplog: pytest.LogCaptureFixture
) -> None:
    budget = 16 << 20
    with sk.connect(shared_service.url, shared_service.token, staging_bytes=budget, codec="raw") as client:
        run = client.run("budget/run")
        state = {f"w{number}": noise(number, 9_500_000) for number in range(8)}
        with caplog.at_level(logging.WARNING, logger="shardkeep"):
            for step in (1, 2):
                state["w0"][:] = noise(100 + step, 9_500_000)
                checkpoint = run.save(step, state).wait(120)
        assert caplog.text.count("staging_bytes") == 1
        assert run._saver is not None
        assert run._saver.attempt._arena.made_bytes <= budget
        target = {key: np.zeros_like(value) for key, value in state.items()}
        checkpoint.load_into(target)
        np.testing.assert_equal(target, state)


def test_E178_the_peak_beside_the_state_stays_below_the_budget(shared_service: ServiceProcess) -> None:
    budget = 32 << 20
    with sk.connect(shared_service.url, shared_service.token, staging_bytes=budget, codec="raw") as client:
        state = {f"w{number}": noise(number, 8 << 20) for number in range(24)}
        run = client.run("peak/run")
        run.save(1, {"warm": noise(1, 40 << 20)}).wait(60)
        gc.collect()
        before, peak = resident_bytes(), 0
        done = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.005):
                peak = max(peak, resident_bytes())

        watcher = threading.Thread(target=watch)
        watcher.start()
        run.save(2, state).wait(120)
        done.set()
        watcher.join()
        assert peak - before < budget


@pytest.mark.slow
def test_E177_memory_is_flat_over_many_saves(run: Run) -> None:
    state = {"w": noise(1, 32 << 20)}
    sizes = []
    for step in range(24):
        state["w"][:: 1 << 19] += 1
        run.save(step, state).wait(60)
        gc.collect()
        sizes.append(resident_bytes())
    assert max(sizes[8:]) < 1.1 * sizes[7], sizes


def test_E167_what_changes_after_staging_is_not_in_the_checkpoint(run: Run) -> None:
    state = {f"t{number}": noise(number, 1_700_000) for number in range(20)}
    expected = {key: value.copy() for key, value in state.items()}
    handle = run.save(1, state)
    garbage = []
    for value in state.values():
        value[:] = 0
        garbage.append(np.ones(1_700_000, np.uint8))
    target = {key: np.zeros_like(value) for key, value in state.items()}
    handle.wait(60).load_into(target)
    np.testing.assert_equal(target, expected)


def test_a_rank_that_gives_up_ends_the_others_waits_at_once(shared_service: ServiceProcess) -> None:
    with sk.connect(shared_service.url, shared_service.token) as client:
        attempts = [
            client.run("giving-up/run").begin_attempt(sk.World(rank, 2, "ef" * 16), ordinal=0) for rank in range(2)
        ]
        for attempt in attempts:
            attempt.decide_resume()
        waiting = attempts[0].start_save(7, expected_bytes=0)
        handle = waiting.finish()

        def fill(start: int, out: memoryview) -> None:
            raise RuntimeError("cannot copy")

        writer = attempts[1].start_save(7, expected_bytes=10)
        with pytest.raises(RuntimeError, match="cannot copy"):
            writer.stage("w", "uint8", (10,), Region.whole((10,)), SliceKind.TENSOR, fill=fill)
        started = time.monotonic()
        with pytest.raises(SaveFailed, match="cannot copy") as caught:
            handle.wait(60)
        assert time.monotonic() - started < 60, "it need not wait for a lease to lapse"
        assert caught.value.rank == 1
        assert caught.value.step == 7
        assert attempts[1].saves == attempts[0].saves == 1


def test_a_fenced_attempt_raises_as_itself(client: sk.Client, run: Run) -> None:
    run.save(1, {"w": noise(1, 10)}).wait(60)
    client.run(f"{run.project}/{run.name}").resume()
    with pytest.raises(sk.errors.AttemptFenced):
        run.save(2, {"w": noise(2, 10)}).wait(60)


def test_chunks_are_negotiated_in_batches_and_sent_in_parallel(shared_service: ServiceProcess) -> None:
    with FaultyProxy(shared_service.port) as proxy, sk.connect(proxy.url, shared_service.token, codec="raw") as client:
        run = client.run("batches/run")
        run.save(1, {"w": noise(1, 200 << 20)}).wait(120)
        assert proxy.count(PUT_CHUNK) == 7
        assert proxy.count("POST .*/negotiate$") <= 7


@pytest.mark.parametrize("codec", ["raw", "zstd", "planes", "auto"])
def test_every_codec_brings_back_the_same_bits(shared_service: ServiceProcess, codec: Any) -> None:
    floats = (np.random.default_rng(1).standard_normal(7_000_000) * 0.02).astype(np.float32)
    state: dict[str, np.ndarray[Any, Any]] = {
        "w": floats,
        "half": floats[:70_001].astype(np.float16),
        "ints": np.arange(1_000_000),
    }
    with sk.connect(shared_service.url, shared_service.token, codec=codec) as client:
        checkpoint = client.run(f"codecs/{codec}").save(1, state).wait(60)
        target = {key: np.zeros_like(value) for key, value in state.items()}
        checkpoint.load_into(target)
        np.testing.assert_equal(target, state)
        if codec in {"zstd", "planes"}:
            assert checkpoint.info.stored_bytes is not None
            assert checkpoint.info.stored_bytes < 0.97 * sum(value.nbytes for value in state.values())
