"""The service under measurement: a real process on a free port, with a file-system store and either database."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_READY_SECONDS = 60.0
_STOP_SECONDS = 90.0
_STEP_SECONDS = 0.05
PROFILE_VARIABLE = "SHARDKEEP_BENCH_PROFILE"
"""Where `bench.sampled_service` writes its profile."""


@dataclass(frozen=True, slots=True)
class Service:
    """A running service."""

    port: int
    pid: int
    token: str
    data_dir: Path

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running_service(
    data_dir: Path, *, database_url: str | None = None, profile: Path | None = None
) -> Iterator[Service]:
    """Runs the service on `data_dir` for the length of the block; with `profile` under the sampler, which slows it.

    The database is SQLite there, or the PostgreSQL that `database_url` names, which is migrated first.
    """
    port = free_port()
    module = "shardkeep_service" if profile is None else "bench.sampled_service"
    command = [sys.executable, "-m", module, "serve", "--data", str(data_dir), "--port", str(port)]
    environment = {**os.environ, "SHARDKEEP_HOME": str(data_dir.parent / "home"), PROFILE_VARIABLE: str(profile)}
    if database_url is not None:
        environment["SHARDKEEP_SERVICE_DATABASE_URL"] = database_url
    log_path = data_dir.parent / "service.log"
    data_dir.mkdir(parents=True, exist_ok=True)
    if database_url is not None:
        _command(environment, "migrate")
    with log_path.open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _wait_until_ready(port, process, log_path)
        if database_url is None:
            token = json.loads((data_dir / "admin-token.json").read_text())["token"]
        else:
            token = _command(environment, "token", "create", "--scope", "admin").splitlines()[-1]
        yield Service(port, process.pid, token, data_dir)
    finally:
        process.terminate()
        process.wait(timeout=_STOP_SECONDS)


def _command(environment: dict[str, str], *words: str) -> str:
    """What a command of `shardkeep-service` prints."""
    command = [sys.executable, "-m", "shardkeep_service", *words]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(port: int, process: subprocess.Popen[bytes], log_path: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the service ended with {process.returncode}:\n{log_path.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(_STEP_SECONDS)
    raise SystemExit(f"the service was not ready within {_READY_SECONDS:.0f} s:\n{log_path.read_text()[-2000:]}")
