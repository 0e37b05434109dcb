"""The embedded service of the demo: started on a free port, stopped at the end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from demo.ranks import free_port

READY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Service:
    """Where the service answers, and the admin token it made at its first start."""

    port: int
    token: str

    @property
    def url(self) -> str:
        """The service's own address."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running_service(data: Path) -> Iterator[Service]:
    """Runs `shardkeep-service serve` on `data` for the length of the block."""
    port = free_port()
    command = [sys.executable, "-m", "shardkeep_service", "serve", "--host", "127.0.0.1", "--port", str(port)]
    data.mkdir(parents=True, exist_ok=True)
    with (data.parent / "service.log").open("ab") as log:
        process = subprocess.Popen([*command, "--data", str(data)], stdout=log, stderr=log)
    try:
        _wait_until_ready(port, process)
        token = json.loads((data / "admin-token.json").read_text())["token"]
        yield Service(port, token)
    finally:
        process.terminate()
        process.wait(timeout=READY_SECONDS)


def _wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the service ended with {process.returncode}; see service.log")
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (URLError, OSError):
            time.sleep(0.05)
    raise SystemExit(f"the service was not ready within {READY_SECONDS:.0f} s; see service.log")
