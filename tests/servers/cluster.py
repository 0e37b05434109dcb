"""A whole cluster on loopback: replicas of the service on one PostgreSQL database and one store, and workers.

Where the bytes lie is said by the environment: the variables of an S3 bucket, or none for one directory that all share.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.service_process import ServiceProcess
from tests.warm_process import run_program

_COMMAND_SECONDS = 60.0


class WorkerProcess(ServiceProcess):
    """`shardkeep-service worker`; it listens for Prometheus only."""

    def command(self) -> list[str]:
        """The words after `shardkeep-service`."""
        return ["worker", "--data", str(self.data_dir)]

    def start(self, *, env: Mapping[str, str] | None = None, wait: bool = True) -> Self:
        """Starts it and waits until it works."""
        return super().start(env={"SHARDKEEP_SERVICE_METRICS_PORT": str(self.port), **(env or {})}, wait=wait)

    def is_ready(self) -> bool:
        """Whether its port of metrics answers, if only that a token is missing."""
        try:
            with urllib.request.urlopen(f"{self.url}/metrics", timeout=5):
                return True
        except urllib.error.HTTPError:
            return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


class Cluster:
    """Replicas and one worker; `token` is an admin's. Nothing runs before `start`, nothing after `stop`."""

    def __init__(
        self, directory: Path, database_url: str, *, replicas: int = 2, env: Mapping[str, str] | None = None
    ) -> None:
        self.env = {"SHARDKEEP_SERVICE_DATABASE_URL": database_url, **(env or {})}
        self.data_dir = directory / "data"
        self.replicas = [
            ServiceProcess(self.data_dir, env=self.env, name=f"replica-{number}") for number in range(1, replicas + 1)
        ]
        self.worker = WorkerProcess(self.data_dir, env=self.env, name="worker")
        self.token = ""

    def start(self, *, worker: bool = True) -> Self:
        """Migrates, makes the token, starts the replicas side by side, then the worker."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.run("migrate")
        self.token = self.run("token", "create", "--scope", "admin").splitlines()[-1]
        for replica in self.replicas:
            replica.start(wait=False)
        for replica in self.replicas:
            replica.wait_ready()
        if worker:
            self.worker.start()
        return self

    def stop(self) -> None:
        """Ends every process that runs."""
        for process in (self.worker, *self.replicas):
            process.stop()

    def run(self, *words: str) -> str:
        """One command of `shardkeep-service` beside the cluster; what it printed."""
        env = {**os.environ, **self.env, "SHARDKEEP_SERVICE_DATA_DIR": str(self.data_dir)}
        done = run_program("shardkeep-service", *words, env=env, timeout_seconds=_COMMAND_SECONDS)
        assert done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr[-4000:]}"
        return done.stdout

    def ask(self, path: str, body: object = None, *, method: str = "GET") -> Any:
        """The JSON that the first replica answers the admin."""
        request = urllib.request.Request(
            self.replicas[0].url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"authorization": f"Bearer {self.token}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    @property
    def log(self) -> str:
        """What all processes wrote."""
        return "\n".join(f"--- {process.name}\n{process.log}" for process in (self.worker, *self.replicas))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
