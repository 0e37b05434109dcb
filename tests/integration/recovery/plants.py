"""Services whose database can be lost: an embedded one (SQLite, a directory) and a cluster (PostgreSQL, S3)."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tests.servers.cluster import Cluster
from tests.servers.postgres import Postgres
from tests.servers.seaweedfs import S3Server
from tests.service_process import ServiceProcess
from tests.warm_process import run_program

OFTEN = {"SHARDKEEP_SERVICE_HOUSEKEEPING_SECONDS": "0.5"}
_COMMAND_SECONDS = 120


class Plant(Protocol):
    """A service, its database and its bucket."""

    token: str

    @property
    def url(self) -> str:
        """Where it listens."""
        ...

    def start(self) -> None:
        """Starts all its processes."""
        ...

    def stop(self) -> None:
        """Ends them."""
        ...

    def lose_database(self) -> None:
        """Drops it; from then on there is an empty one."""
        ...

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command of `shardkeep-service`."""
        ...

    def flip_a_bit(self, folder: str, checkpoint_id: str) -> str:
        """Damages one of the checkpoint's stored objects of a kind; gives its key."""
        ...


def wait_for_records(plant: Plant) -> None:
    """Returns when the bucket knows every change."""
    until = time.monotonic() + 60
    while finding(plant, "outbox")["detail"] != "the bucket knows every change":
        assert time.monotonic() < until, "the outbox is not worked off"
        time.sleep(0.2)


def finding(plant: Plant, name: str) -> dict[str, Any]:
    """What the doctor says of one thing."""
    found: dict[str, Any] = next(one for one in json.loads(plant.run("doctor", "--json").stdout) if one["name"] == name)
    return found


class EmbeddedPlant:
    """SQLite and objects in one directory."""

    def __init__(self, directory: Path) -> None:
        self._service = ServiceProcess(directory / "service", env=OFTEN)
        self.token = ""

    @property
    def url(self) -> str:
        return self._service.url

    def start(self) -> None:
        self._service.start()
        self.token = self._service.token

    def start_is_refused(self) -> str:
        """The log of a start that ends by itself."""
        self._service.start(wait=False)
        assert self._service.wait_exit(timeout_seconds=60) == 1
        return self._service.log

    def stop(self) -> None:
        self._service.stop()

    def lose_database(self) -> None:
        for path in self._service.data_dir.glob("shardkeep.db*"):
            path.unlink()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return _run(words, {"SHARDKEEP_SERVICE_DATA_DIR": str(self._service.data_dir)})

    def flip_a_bit(self, folder: str, checkpoint_id: str) -> str:
        objects = self._service.data_dir / "blobs" / "objects"
        files = (path for path in sorted(objects.rglob("*")) if path.is_file())
        path = next(path for path in files if f"/{folder}/" in str(path) and checkpoint_id in str(path))
        body = bytearray(path.read_bytes())
        body[-9] ^= 1
        path.chmod(0o600)
        path.write_bytes(body)
        return str(path.relative_to(objects))


class ClusterPlant:
    """PostgreSQL, a bucket, one replica and a worker."""

    def __init__(self, directory: Path, postgres: Postgres, server: S3Server) -> None:
        self._directory = directory
        self._postgres = postgres
        self._server = server
        self._bucket = server.new_bucket()
        self._cluster = self._new_cluster()
        self._was_started = False
        self.token = ""

    @property
    def url(self) -> str:
        return self._cluster.replicas[0].url

    def start(self) -> None:
        self._cluster.start()
        self.token = self._cluster.token

    def stop(self) -> None:
        self._cluster.stop()

    def lose_database(self) -> None:
        self._cluster = self._new_cluster()
        self._cluster.run("migrate")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return _run(words, {**self._cluster.env, "SHARDKEEP_SERVICE_DATA_DIR": str(self._directory / "commands")})

    def flip_a_bit(self, folder: str, checkpoint_id: str) -> str:
        client = self._server.client
        keys = sorted(self._server.objects(self._bucket))
        key = next(key for key in keys if f"/{folder}/" in key and checkpoint_id in key)
        body = bytearray(client.get_object(Bucket=self._bucket, Key=key)["Body"].read())
        body[-9] ^= 1
        client.put_object(Bucket=self._bucket, Key=key, Body=bytes(body))
        return key

    def _new_cluster(self) -> Cluster:
        self._directory.mkdir(parents=True, exist_ok=True)
        env = {**OFTEN, **self._server.environment(self._bucket)}
        name = f"life-{len(list(self._directory.iterdir()))}"
        return Cluster(self._directory / name, self._postgres.new_database(), replicas=1, env=env)


def _run(words: tuple[str, ...], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return run_program("shardkeep-service", *words, env={**os.environ, **env}, timeout_seconds=_COMMAND_SECONDS)
