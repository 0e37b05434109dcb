"""Workers lose nothing: one after another is killed at a message to the database, and the last one ends all their work.

What waits for them: lapsed sessions (expiry), commits without a record (outbox), a policy (retention), what it deletes
(purge, collection), a stray object (collection), and a chunk whose bytes changed in the store (scrub).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import make_url

import shardkeep as sk
from shardkeep.format.regions import Region
from shardkeep.store.checkpoint import ReadRequest
from shardkeep.store.world import World
from tests.failures.kills.made_up_state import NAMES, SHAPE, rows_of
from tests.failures.kills.saving_rank import RankTask, save
from tests.failures.replicas.wire import When, Wire
from tests.servers.cluster import Cluster, WorkerProcess
from tests.servers.postgres import Postgres

pytestmark = pytest.mark.slow

QUICK = {
    "LEASE_SECONDS": "2",
    "BEAT_SECONDS": "0.5",
    "OPEN_LIMIT_SECONDS": "10",
    "CLAIM_REPEAT_SECONDS": "1",
    "HOUSEKEEPING_SECONDS": "0.2",
    "WORKER_LEASE_SECONDS": "2",
    "RETENTION_SECONDS": "0.5",
    "DELETED_KEEP_SECONDS": "0",
    "COLLECTION_SECONDS": "0.5",
    "COLLECTION_GRACE_SECONDS": "1",
    "SCRUB_SECONDS": "0.5",
    "SCRUB_INTERVAL_SECONDS": "1",
}
MESSAGES: tuple[int, ...] = (1, 10, 30, 45, 60, 75, 90, 110, 130, 150, 175, 200, 230, 270, 320, 380, 450, 600)
"""Of each worker, at which message it dies: some at their start, most in the middle of tasks."""
KILL_SECONDS = 180
END_SECONDS = 120
STEPS = 6
KEPT = (STEPS - 1, STEPS)
CHUNKS_A_SAVE = 2


@pytest.fixture
def cluster(tmp_path: Path, postgres: Postgres) -> Iterator[Cluster]:
    env = {f"SHARDKEEP_SERVICE_{name}": value for name, value in QUICK.items()}
    found = Cluster(tmp_path, postgres.new_database(), replicas=1, env=env)
    try:
        yield found.start(worker=False)
    finally:
        found.stop()


class Work:
    """What the workers are given to do, and what must have come of it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._url = cluster.replicas[0].url
        self.kept = [self._save("workers/kept", step) for step in range(1, STEPS + 1)][-len(KEPT) :]
        cluster.ask("/v1/projects/workers/runs/kept/retention", {"keep_last": len(KEPT)}, method="PUT")
        self.damaged = self._save("workers/damaged", 100)
        self._flip_a_bit_of(self.damaged)
        self.left = self._open("workers/left")
        self._stray = self._objects() / self._project() / "chunks" / "00" / f"ckp_{'0' * 32}" / f"{'0' * 64}.1"
        self._stray.parent.mkdir(parents=True)
        self._stray.write_bytes(b"stray")

    def undone(self) -> list[str]:
        """What is still to do."""
        states = {item["id"]: item for item in self._cluster.ask("/v1/checkpoints?limit=200")["items"]}
        committed = {id_ for id_, item in states.items() if item["state"] == "committed"}
        records = {path.name.partition(".")[0] for path in self._objects().glob("*/commits/*")}
        found = {
            "the save that a rank left is open": states[self.left]["state"] != "aborted",
            "the policy is not applied": committed != {*self.kept, self.damaged},
            "records and commits differ": records != committed,
            "the damage is not found": not states[self.damaged]["quarantined"],
            "the stray is there": self._stray.exists(),
            "chunks of what was deleted are there": len(self.chunks()) > CHUNKS_A_SAVE * len(committed),
        }
        return [what for what, holds in found.items() if holds]

    def check_nothing_was_lost(self) -> None:
        """What the policy keeps is there, whole and bit-equal, and the damaged one is passed over with its reason."""
        with sk.connect(self._url, self._cluster.token) as client:
            for id_, step in zip(self.kept, KEPT, strict=True):
                checkpoint = client.checkpoint(id_)
                for name in NAMES:
                    out = np.empty(SHAPE, dtype=np.float32)
                    checkpoint.read([ReadRequest(name, Region.whole(SHAPE), out.data.cast("B"))])
                    assert np.array_equal(out, rows_of(name, step, 0, SHAPE[0]))
            latest = client.run("workers/kept").latest()
            assert latest is not None
            assert latest.id == self.kept[-1]
        passed_over = self._cluster.ask("/v1/projects/workers/runs/damaged/latest")["passed_over"]
        assert [(item["checkpoint_id"], item["code"]) for item in passed_over] == [(self.damaged, "quarantined")]

    def chunks(self) -> list[Path]:
        """Every chunk in the store."""
        return [path for path in self._objects().glob("*/chunks/*/*/*") if path != self._stray]

    def _objects(self) -> Path:
        return self._cluster.data_dir / "blobs" / "objects"

    def _project(self) -> str:
        (found,) = (path.name for path in self._objects().glob("prj_*"))
        return found

    def _save(self, run: str, step: int) -> str:
        return save(RankTask(self._url, self._cluster.token, run, step, World(0, 1, secrets.token_hex(16))))

    def _open(self, run: str) -> str:
        """A save that one rank of two opened and then never spoke of again."""
        project, name = run.split("/")
        base = f"/v1/projects/{project}/runs/{name}"
        self._cluster.ask(base, method="PUT")
        begun = {"launch_id": secrets.token_hex(16), "ordinal": 0, "world_size": 2}
        attempt = self._cluster.ask(f"{base}/attempts", begun, method="POST")["id"]
        self._cluster.ask(f"/v1/attempts/{attempt}/resume", {}, method="POST")
        opening = {"save": 0, "step": 1, "rank": 0, "world_size": 2}
        return str(self._cluster.ask(f"/v1/attempts/{attempt}/checkpoints", opening, method="POST")["checkpoint_id"])

    def _flip_a_bit_of(self, checkpoint_id: str) -> None:
        path = next(self._objects().glob(f"*/chunks/*/{checkpoint_id}/*"))
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


class Doomed:
    """A worker that is killed at a message of its own."""

    def __init__(self, cluster: Cluster, wire: Wire, name: str) -> None:
        url = make_url(cluster.env["SHARDKEEP_SERVICE_DATABASE_URL"]).set(port=wire.port)
        env = {**cluster.env, "SHARDKEEP_SERVICE_DATABASE_URL": url.render_as_string(hide_password=False)}
        self._worker = WorkerProcess(cluster.data_dir, env=env, name=name)
        self._wire = wire
        self._killed = threading.Event()

    def live_until(self, message: int, when: When) -> None:
        self._wire.cut_at(message, when, self._kill)
        self._worker.start(wait=False)
        assert self._killed.wait(KILL_SECONDS), f"it never sent message {message}:\n{self._worker.log[-4000:]}"

    def _kill(self) -> None:
        self._worker.kill()
        self._killed.set()


@pytest.mark.timeout(600)
def test_workers_killed_at_any_message_are_followed_by_one_that_ends_their_work(cluster: Cluster) -> None:
    work = Work(cluster)
    wire = Wire(make_url(cluster.env["SHARDKEEP_SERVICE_DATABASE_URL"]).port or 0)

    for number, message in enumerate(MESSAGES):
        Doomed(cluster, wire, f"doomed-{number}").live_until(message, "after" if number % 2 else "before")
    wire.close()
    work_left = work.undone()
    with WorkerProcess(cluster.data_dir, env=cluster.env, name="last") as last:
        until = time.monotonic() + END_SECONDS
        while undone := work.undone():
            assert time.monotonic() < until, f"{undone} (of {work_left}):\n{last.log[-6000:]}"
            time.sleep(0.5)

    work.check_nothing_was_lost()
    assert len(work.chunks()) == CHUNKS_A_SAVE * (len(KEPT) + 1)
