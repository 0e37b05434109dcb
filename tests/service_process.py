"""A real service in its own process: started on a free port, stopped, killed and restarted on the same port."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.warm_process import WarmProcess

START_SECONDS = 60.0
REAL_COMMAND = (sys.executable, "-m", "shardkeep_service")
"""The `program` of tests that measure memory, or anything else that depends on what a process has loaded."""


class ServiceProcess:
    """One service on one data directory.

    `env` adds to the environment; SHARDKEEP_HOME is always a directory beside the data, so that no test touches the
    user's. `name` tells replicas that share a data directory apart. `program` is the command that starts it; without
    one it is forked from a process that has its modules loaded. Use as a context manager, or call `start` and `stop`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        program: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.name = name or data_dir.name
        self.home = data_dir.parent / f"{self.name}-home"
        self.port = port or free_port()
        self.env = dict(env or {})
        self.log_path = data_dir.parent / f"{self.name}.log"
        self._program = program
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The admin token its first start made."""
        return str(json.loads((self.data_dir / "admin-token.json").read_text())["token"])

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._running().pid

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What it wrote to standard error so far, over all starts."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def environment(self) -> dict[str, str]:
        """What client processes of this service should be started with."""
        return {
            **os.environ,
            "SHARDKEEP_HOME": str(self.home),
            "SHARDKEEP_URL": self.url,
            "SHARDKEEP_TOKEN": self.token,
        }

    def command(self) -> list[str]:
        """The words after `shardkeep-service`."""
        return ["serve", "--data", str(self.data_dir), "--port", str(self.port)]

    def start(self, *, env: Mapping[str, str] | None = None, wait: bool = True) -> Self:
        """Starts it and waits until it is ready; `env` holds for this start only."""
        assert self._process is None, "already started"
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "SHARDKEEP_HOME": str(self.home), **self.env, **(env or {})}
        self._process = self._started(environment)
        if wait:
            self.wait_ready()
        return self

    def _started(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes] | WarmProcess:
        if not self._program:
            words, log_path = tuple(self.command()), self.log_path
            return WarmProcess("shardkeep-service", words, env=environment, stdout=log_path, stderr=log_path)
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                [*self._program, *self.command()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self, *, timeout_seconds: float = START_SECONDS) -> None:
        """Returns when /readyz answers 200; fails with the log when the process ends before."""
        until = time.monotonic() + timeout_seconds
        while not self.is_ready():
            exited = self._running().poll()
            assert exited is None, f"the service ended with {exited}:\n{self.log[-4000:]}"
            assert time.monotonic() < until, f"the service is not ready after {timeout_seconds} s:\n{self.log[-4000:]}"
            time.sleep(0.05)

    def is_ready(self) -> bool:
        """Whether /readyz answers 200 now."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def stop(self, *, timeout_seconds: float = 90) -> int:
        """Ends it with SIGTERM and gives the exit code; one that is not running gives its last."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        return _wait(process, timeout_seconds)

    def kill(self) -> None:
        """Ends it with SIGKILL, as a crash does."""
        process, self._process = self._running(), None
        process.kill()
        _wait(process, 30)

    def wait_exit(self, *, timeout_seconds: float = 90) -> int:
        """Waits for it to end by itself (by a fault, say) and gives the exit code."""
        process, self._process = self._running(), None
        return _wait(process, timeout_seconds)

    def restart(self, *, env: Mapping[str, str] | None = None) -> Self:
        """Stops it if it runs and starts it on the same port."""
        self.stop()
        return self.start(env=env)

    def send_signal(self, number: int) -> None:
        """Sends a signal and does not wait."""
        self._running().send_signal(number)

    def _running(self) -> subprocess.Popen[bytes] | WarmProcess:
        assert self._process is not None, "not started"
        return self._process

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections, and that nobody else can take meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def _wait(process: subprocess.Popen[bytes] | WarmProcess, timeout_seconds: float) -> int:
    try:
        return process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)
        raise
