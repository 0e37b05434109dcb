"""Starting and killing the ranks of one training job, as a scheduler would."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.setups import Setup

LIMIT_SECONDS = 240


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Job:
    """What one job trains: `report` is the stem of the files its ranks write."""

    run: str
    setup: Setup
    ranks: int
    steps: int
    report: Path


@dataclass(slots=True)
class RunningJob:
    """The processes of a job."""

    job: Job
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def kill(self) -> None:
        """SIGKILL to every rank, by process id: no handler runs."""
        for process in self.processes:
            process.send_signal(signal.SIGKILL)

    def wait(self) -> list[int]:
        """Exit codes by rank; a job over its time is killed and raises."""
        try:
            return [process.wait(timeout=LIMIT_SECONDS) for process in self.processes]
        finally:
            for process in self.processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def start(job: Job, *, url: str, token: str) -> RunningJob:
    """Starts every rank with the environment torchrun would give and one thread each."""
    port = free_port()
    running = RunningJob(job)
    for rank in range(job.ranks):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(job.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "SHARDKEEP_URL": url,
            "SHARDKEEP_TOKEN": token,
        }
        command = [sys.executable, "-m", "demo.training", "--run", job.run, "--setup", job.setup]
        log = Path(f"{job.report}.{rank}.log").open("ab")  # noqa: SIM115 - the child keeps it
        with log:
            running.processes.append(
                subprocess.Popen(
                    [*command, "--steps", str(job.steps), "--report", str(job.report)],
                    env=environment,
                    stderr=log,
                    stdout=log,
                )
            )
    return running


def run_to_end(job: Job, *, url: str, token: str) -> None:
    """Runs a job and insists that every rank exits with 0."""
    codes = start(job, url=url, token=token).wait()
    if any(codes):
        logs = "\n".join(
            f"--- rank {rank}\n{Path(f'{job.report}.{rank}.log').read_text()[-3000:]}" for rank in range(job.ranks)
        )
        raise SystemExit(f"the ranks of {job.run} exited with {codes}\n{logs}")


def events(job: Job, rank: int) -> list[dict[str, Any]]:
    """What one rank wrote."""
    path = Path(f"{job.report}.{rank}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]
