"""Starting the ranks of `bench.throughput` and putting their reports together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.running_service import Service, free_port
from bench.sampler import Cost
from bench.stopwatch import Reading

_LIMIT_SECONDS = 1_800


@dataclass(frozen=True, slots=True)
class JobReport:
    """What all ranks of one job reported."""

    total_bytes: int
    stored_share: float
    """Stored bytes of a save for each byte of its tensors."""
    readings: list[Reading]
    """Of all ranks together: the slowest's times, the sum of CPU, the largest memory."""
    costs: list[Cost]


def run_ranks(
    service: Service, folder: Path, *, ranks: int, total_bytes: int, repetitions: int, codec: str, profile: str | None
) -> JobReport:
    """Runs one job to its end; SystemExit with the log of a rank that fails."""
    stem = folder / (profile or "turns")
    command = [
        sys.executable, "-m", "bench.throughput_rank", "--report", str(stem), "--folder", str(folder),
        "--bytes", str(total_bytes), "--repetitions", str(repetitions), "--service-pid", str(service.pid),
        "--codec", codec, *(("--profile", profile) if profile else ()),
    ]  # fmt: skip
    environment = {"SHARDKEEP_URL": service.url, "SHARDKEEP_TOKEN": service.token}
    run_rank_processes(command, stem, ranks=ranks, environment=environment)
    return _merged([json.loads(Path(f"{stem}.{rank}.json").read_text()) for rank in range(ranks)])


def run_rank_processes(command: Sequence[str], stem: Path, *, ranks: int, environment: Mapping[str, str]) -> None:
    """Runs a command once for each rank, with what torchrun would put into its environment and one thread, to the end.

    Each writes to `stem` + `.<rank>.log`; SystemExit with the log of one that fails.
    """
    shared = {
        **os.environ,
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        **environment,
    }
    running = []
    for rank in range(ranks):
        with Path(f"{stem}.{rank}.log").open("wb") as log:
            running.append(
                subprocess.Popen(command, env={**shared, "RANK": str(rank)}, stdout=log, stderr=subprocess.STDOUT)
            )
    _wait(running, stem)


def _wait(running: Sequence[subprocess.Popen[bytes]], stem: Path) -> None:
    try:
        codes = [process.wait(timeout=_LIMIT_SECONDS) for process in running]
    finally:
        for process in running:
            process.kill()
    for rank, code in enumerate(codes):
        if code:
            raise SystemExit(f"rank {rank} ended with {code}:\n{Path(f'{stem}.{rank}.log').read_text()[-3000:]}")


def _merged(reports: Sequence[dict[str, Any]]) -> JobReport:
    by_rank = [[Reading(**reading) for reading in report["readings"]] for report in reports]
    cpu: defaultdict[str, float] = defaultdict(float)
    wall: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        for cost in report["costs"]:
            cpu[cost["where"]] += cost["cpu_seconds"]
            wall[cost["where"]] += cost["thread_seconds"]
    costs = sorted((Cost(name, cpu[name], wall[name]) for name in cpu), key=lambda cost: -cost.cpu_seconds)
    readings = [_together(same) for same in zip(*by_rank, strict=True)]
    return JobReport(reports[0]["total_bytes"], reports[0]["stored_share"], readings, costs)


def _together(same: Sequence[Reading]) -> Reading:
    return Reading(
        same[0].operation,
        same[0].repetition,
        max(reading.wall_seconds for reading in same),
        max(reading.blocked_seconds for reading in same),
        sum(reading.cpu_seconds for reading in same),
        max(reading.extra_bytes for reading in same),
        sum(reading.service_cpu_seconds for reading in same),
        max(reading.service_peak_bytes for reading in same),
    )
