"""Replicas lose nothing: a save of 2 ranks is cut at every request, by killing the replica that serves it.

The ranks talk to a load balancer before three replicas and do not know which of them serves. After each cut the save
commits through the others, whole and bit-equal, whatever the killed one had begun.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import shardkeep as sk
from demo.balancer import Balancer
from demo.gate import Gate, Tally, Trap
from shardkeep.format.regions import Region
from shardkeep.store.checkpoint import ReadRequest
from shardkeep.store.world import World
from tests.failures.kills.made_up_state import NAMES, SHAPE, rows_of
from tests.failures.kills.saving_rank import RankTask, save
from tests.servers.cluster import Cluster
from tests.servers.postgres import Postgres
from tests.servers.seaweedfs import S3Server
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow

When = Literal["before", "after"]
WORLD_SIZE = 2
REPLICAS = 3
REQUESTS_AT_LEAST = 12
REQUESTS_AT_MOST = 60
SAVE_SECONDS = 120
READY_SECONDS = 60
QUICK_LEASES = {
    "SHARDKEEP_SERVICE_LEASE_SECONDS": "10",
    "SHARDKEEP_SERVICE_BEAT_SECONDS": "1",
    "SHARDKEEP_SERVICE_VALIDATION_LEASE_SECONDS": "1.5",
    "SHARDKEEP_SERVICE_WORKER_LEASE_SECONDS": "3",
    "SHARDKEEP_SERVICE_HOUSEKEEPING_SECONDS": "0.5",
}


class Stand:
    """The cluster, a gate before each replica, and the balancer before the gates."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.gates = [Gate(replica.port) for replica in cluster.replicas]
        self.balancer = Balancer([gate.port for gate in self.gates])
        self.killed: ServiceProcess | None = None
        self._cut = threading.Lock()

    def close(self) -> None:
        self.balancer.close()
        for gate in self.gates:
            gate.close()

    def arm(self, number: int, when: When) -> None:
        """The replica that serves the `number`-th request from now on dies of it."""
        tally = Tally()
        for gate, replica in zip(self.gates, self.cluster.replicas, strict=True):
            gate.set_trap(Trap(r" /v1/", number, partial(self._kill, replica), when, tally))

    def disarm(self) -> None:
        for gate in self.gates:
            gate.set_trap(None)

    def bring_back(self) -> None:
        """Starts the killed replica again, while the others go on; comes back once one may die and another is there."""
        assert self.killed is not None
        self.killed.start(wait=False)
        self.killed = None
        until = time.monotonic() + READY_SECONDS
        while sum(replica.is_ready() for replica in self.cluster.replicas) < REPLICAS - 1:
            assert time.monotonic() < until, f"the killed replicas do not come back:\n{self.cluster.log[-4000:]}"
            time.sleep(0.05)

    def _kill(self, replica: ServiceProcess) -> None:
        with self._cut:
            replica.kill()
            self.killed = replica


@pytest.fixture(params=["streamed to files", "direct to S3"], scope="module")
def stand(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    postgres: Postgres,
    seaweedfs: S3Server,
) -> Iterator[Stand]:
    env = dict(QUICK_LEASES)
    if request.param == "direct to S3":
        env |= {**seaweedfs.environment(seaweedfs.new_bucket()), "SHARDKEEP_SERVICE_DIRECT": "always"}
    directory: Path = tmp_path_factory.mktemp("replicas")
    with Cluster(directory, postgres.new_database(), replicas=REPLICAS, env=env) as cluster:
        found = Stand(cluster)
        yield found
        found.close()


def save_all(run: str, step: int, stand: Stand) -> list[str]:
    """Both ranks save through the balancer; the ids of what they committed."""
    launch = secrets.token_hex(16)
    tasks = [
        RankTask(stand.balancer.url, stand.cluster.token, run, step, World(rank, WORLD_SIZE, launch))
        for rank in range(WORLD_SIZE)
    ]
    with ThreadPoolExecutor(WORLD_SIZE) as ranks:
        return list(ranks.map(save, tasks, timeout=SAVE_SECONDS))


def whole_step(stand: Stand, run: str) -> int:
    """The step of the latest checkpoint, every element of which was read and compared."""
    with sk.connect(stand.balancer.url, stand.cluster.token) as client:
        latest = client.run(run).latest()
        assert latest is not None
        for name in NAMES:
            out = np.empty(SHAPE, dtype=np.float32)
            latest.read([ReadRequest(name, Region.whole(SHAPE), out.data.cast("B"))])
            assert np.array_equal(out, rows_of(name, latest.step, 0, SHAPE[0])), f"{name} of step {latest.step} differs"
        assert latest.values()["step",] == latest.step
        return latest.step


@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_save_whose_replica_is_killed_at_any_request_commits_through_the_others(stand: Stand, when: When) -> None:
    for number in range(1, REQUESTS_AT_MOST):
        run = f"replicas/{when}-{number}"
        stand.arm(number, when)
        committed = save_all(run, 1, stand)
        stand.disarm()
        assert len(set(committed)) == 1, "the ranks committed different checkpoints"
        assert whole_step(stand, run) == 1
        if stand.killed is None:  # the save ended before its nth request: every one has been cut
            assert number > REQUESTS_AT_LEAST
            return
        stand.bring_back()
    raise AssertionError(f"a save takes {REQUESTS_AT_MOST} requests or more")
