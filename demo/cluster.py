"""`make demo-cluster`: the story with PostgreSQL, SeaweedFS, two replicas behind a load balancer, and a worker.

Told twice: with bytes streamed through the service, and with bytes that go to the object store directly. Each time one
replica is killed (SIGKILL) in the middle of a save. Exits with 0 only if every claim it prints was checked and held.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from demo.balancer import Balancer
from demo.gate import Gate, Trap
from demo.story import MANIFEST_SENT, Story, check, console
from tests.servers.cluster import Cluster
from tests.servers.postgres import Postgres
from tests.servers.seaweedfs import S3Server, SeaweedFS

Way = Literal["streamed", "direct"]
_DIRECT_SETTING = {"streamed": "never", "direct": "always"}
_RECORDS_SECONDS = 60.0
CHUNK_SENT = r"PUT /v1/checkpoints/[^/]+/chunks/"


@dataclass(frozen=True, slots=True)
class Stand:
    """What a telling stands on: the cluster, a gate before each replica, the balancer before these, the bucket."""

    cluster: Cluster
    gates: list[Gate]
    balancer: Balancer
    store: S3Server
    bucket: str


class ClusterStory(Story):
    """The story, with one replica killed in the middle of a save of the resumed job."""

    def __init__(self, stand: Stand, *, way: Way, folder: Path) -> None:
        super().__init__(port=stand.balancer.port, token=stand.cluster.token, folder=folder)
        self._stand = stand
        self._way = way

    def tell(self) -> None:
        """The story, then what only a cluster can show."""
        super().tell()
        console.rule("the cluster")
        self._check_that_both_served()
        self._check_where_bytes_went()
        self._check_commit_records()

    def resume(self) -> None:
        """Runs the job that follows the killed one; the replica that is sent a manifest first dies of it."""
        victim = self._stand.cluster.replicas[0]
        pid = victim.pid
        self._stand.gates[0].set_trap(Trap(MANIFEST_SENT, 1, victim.kill))
        super().resume()
        self._stand.gates[0].set_trap(None)
        check(f"replica 1 (pid {pid}) was killed in the middle of a save, and the save went on", holds=not victim.runs)
        victim.start()

    def _check_that_both_served(self) -> None:
        connections = list(self._stand.balancer.served.values())
        check(f"both replicas served: {connections[0]} and {connections[1]} connections", holds=all(connections))

    def _check_where_bytes_went(self) -> None:
        chunk_bytes = sum(
            size for key, size in self._stand.store.objects(self._stand.bucket).items() if "/chunks/" in key
        )
        passed = self._stand.balancer.passed_bytes
        sent = sum(bool(re.match(CHUNK_SENT, request)) for gate in self._stand.gates for request in gate.requests)
        if self._way == "direct":
            claim = f"of {chunk_bytes:,} bytes of chunks the service saw none: ranks sent it {passed:,} bytes in all"
            check(claim, holds=sent == 0 and passed < chunk_bytes / 2)
        else:
            claim = f"{chunk_bytes:,} bytes of chunks went through the service: {passed:,} bytes in all"
            check(claim, holds=sent > 0 and passed >= chunk_bytes)

    def _check_commit_records(self) -> None:
        """The worker writes one record a commit, from which a lost database would be rebuilt."""
        wanted = len(self._committed())
        deadline = time.monotonic() + _RECORDS_SECONDS
        while (written := self._records()) < wanted and time.monotonic() < deadline:
            time.sleep(0.5)
        check(f"the worker wrote the records of all {wanted} commits into the bucket", holds=written == wanted)

    def _committed(self) -> list[object]:
        """All that was committed, by the cluster's own word."""
        answer = self._stand.cluster.ask("/v1/checkpoints?state=committed&limit=200")
        return list(answer["items"])

    def _records(self) -> int:
        """How many checkpoints have a record; each of its changes is one more object."""
        names = (key.partition("/commits/")[2] for key in self._stand.store.objects(self._stand.bucket))
        return len({name.partition(".")[0] for name in names if name})


@contextmanager
def standing(folder: Path, *, way: Way, postgres: Postgres, store: S3Server) -> Iterator[Stand]:
    """A cluster of its own database and bucket for the length of the block."""
    bucket = store.new_bucket()
    env = {**store.environment(bucket), "SHARDKEEP_SERVICE_DIRECT": _DIRECT_SETTING[way]}
    with Cluster(folder, postgres.new_database(), env=env) as cluster:
        gates = [Gate(replica.port) for replica in cluster.replicas]
        with Balancer([gate.port for gate in gates]) as balancer:
            yield Stand(cluster, gates, balancer, store, bucket)
        for gate in gates:
            gate.close()


def main() -> None:
    """Starts the servers in a temporary folder and tells the story both ways."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shardkeep-demo-cluster-") as name, SeaweedFS(Path(name) / "s3") as store:
        postgres = Postgres()
        try:
            postgres.start()
            for way in ("streamed", "direct"):
                console.rule(f"[bold]{way}[/]", characters="=")
                folder = Path(name) / way
                folder.mkdir()
                with standing(folder, way=way, postgres=postgres, store=store) as stand:
                    ClusterStory(stand, way=way, folder=folder).tell()
        finally:
            postgres.close()
    console.print(f"done in {time.monotonic() - started:.0f} s; everything above was checked")


if __name__ == "__main__":
    main()
