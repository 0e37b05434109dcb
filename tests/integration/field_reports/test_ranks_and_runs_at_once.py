"""Trials in which several ranks or runs do the same at the same moment, each with a client of its own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind
from shardkeep.store.attempt import Attempt
from shardkeep.store.plain_saves import PlainSaver
from tests.faulty_proxy import FaultyProxy
from tests.service_process import ServiceProcess

Result = TypeVar("Result")


def at_once(count: int, work: Callable[[int], Result]) -> list[Result]:
    """`work(rank)` in as many threads, released together."""
    barrier = threading.Barrier(count)

    def released(rank: int) -> Result:
        barrier.wait(60)
        return work(rank)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(released, range(count)))


def begin(client: sk.Client, run: str, rank: int, world_size: int, launch: str) -> Attempt:
    attempt = client.run(run).begin_attempt(sk.World(rank, world_size, launch), ordinal=0)
    attempt.decide_resume()
    return attempt


@pytest.mark.slow
def test_E51_two_ranks_on_one_host_that_save_within_a_millisecond_share_no_key(shared_service: ServiceProcess) -> None:
    clients = [sk.connect(shared_service.url, shared_service.token) for _ in range(2)]
    savers = [PlainSaver(begin(clients[rank], "reports/at-once", rank, 2, "a1" * 16)) for rank in range(2)]
    for step in range(50):
        random_numbers = np.random.default_rng(step)
        states = [{"shared": np.full(100, step), f"own-{rank}": random_numbers.random(500)} for rank in range(2)]

        def save(rank: int, step: int = step, states: list[dict[str, Any]] = states) -> sk.Checkpoint:
            return savers[rank].save(step, states[rank], {}).wait(60)

        first, second = at_once(2, save)
        assert first.id == second.id
        target = {"shared": np.zeros(100, int), "own-0": np.zeros(500), "own-1": np.zeros(500)}
        first.load_into(target)
        np.testing.assert_equal(target, {**states[0], **states[1]})
    for client in clients:
        client.close()


def test_E172_four_ranks_with_random_delays_and_a_run_that_retries_the_step_get_one_checkpoint_each(
    shared_service: ServiceProcess,
) -> None:
    clients = [sk.connect(shared_service.url, shared_service.token) for _ in range(4)]
    seen = []
    for launch in ("b1" * 16, "b2" * 16):

        def save(rank: int, launch: str = launch) -> str:
            time.sleep(random.random() * 0.2)
            attempt = begin(clients[rank], "reports/delays", rank, 4, launch)
            time.sleep(random.random() * 0.2)
            with attempt.start_save(10, expected_bytes=4) as writer:

                def fill(start: int, out: memoryview) -> None:
                    out[:] = bytes([rank]) * out.nbytes

                writer.stage("w", "uint8", (4,), Region((rank,), (1,)), SliceKind.PARAMETER, fill=fill)
                checkpoint = writer.finish().wait(60)
            attempt.close()
            return checkpoint.id

        ids = set(at_once(4, save))
        assert len(ids) == 1
        seen.append(ids.pop())
    assert seen[0] != seen[1]
    assert list(np.asarray(clients[0].checkpoint(seen[1]).tensor("w").read())) == [0, 1, 2, 3]
    for client in clients:
        client.close()


def test_E171_two_runs_that_finish_their_best_at_the_same_moment_keep_their_own(
    shared_service: ServiceProcess,
) -> None:
    clients = [sk.connect(shared_service.url, shared_service.token) for _ in range(2)]

    def train(number: int) -> tuple[str, str]:
        run = clients[number].run(f"reports/best-{number}")
        saved = {}
        for step in range(4):
            checkpoint = run.save(step, {"w": np.full(9, 10 * number + step)}, {"loss": abs(step - 1 - number)}).wait(
                60
            )
            saved[checkpoint.id] = checkpoint.metrics["loss"]
        best = min(run.checkpoints(state="committed"), key=lambda item: item.metrics["loss"])
        clients[number].checkpoint(best.id).pin("best")
        (pinned,) = run.checkpoints(pinned=True)
        assert pinned.id in saved
        latest = run.latest()
        assert latest is not None
        assert latest.id in saved
        target = {"w": np.zeros(9, int)}
        clients[number].checkpoint(pinned.id).load_into(target)
        assert (target["w"] == 10 * number + 1 + number).all()
        return pinned.id, latest.id

    first, second = at_once(2, train)
    assert not set(first) & set(second)
    for client in clients:
        client.close()


@pytest.mark.slow
def test_E184_many_readers_of_a_sharded_load_make_no_hot_shard(shared_service: ServiceProcess) -> None:
    """64 readers stand for the 256 of the report: what each asks for does not depend on their number."""
    readers, rows = 64, 4
    state: dict[str, Any] = {"w": np.random.default_rng(1).random((readers * rows, 8192)), "epoch": 3}
    shard_bytes = rows * 8192 * 8
    with FaultyProxy(shared_service.port) as proxy:
        with sk.connect(shared_service.url, shared_service.token, codec="raw") as writer:
            checkpoint_id = writer.run("reports/readers").save(1, state).wait(60).id

        def load(rank: int) -> None:
            with sk.connect(proxy.url, shared_service.token, connections=2) as client:
                checkpoint = client.checkpoint(checkpoint_id)
                out = np.zeros((rows, 8192))
                region = Region((rank * rows, 0), (rows, 8192))
                checkpoint.read([sk.ReadRequest("w", region, out.reshape(-1).view(np.uint8).data)], rank=rank)
                np.testing.assert_array_equal(out, state["w"][rank * rows : (rank + 1) * rows])
                assert checkpoint.values()["epoch",] == 3

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(load, range(readers)))
        manifests = [item for item in proxy.exchanges if "/manifests/" in item.path]
        assert len(manifests) == readers
        assert max(len(item.answer) for item in manifests) < 100_000
        assert len(proxy.exchanges) <= 6 * readers
        chunk_bytes = proxy.sent_bytes(r"GET .*/chunks/[0-9a-f]{64}$")
        assert chunk_bytes <= readers * (shard_bytes + 2 * (1 << 20)), "no reader fetches what others need"
