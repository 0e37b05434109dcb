"""The tables that `bench.throughput` prints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.rank_job import JobReport
from bench.stopwatch import Reading

_PEERS = {"save": "DCP save, sync_files", "load": "DCP load"}


def show_operations(console: Console, report: JobReport) -> None:
    """Medians of each operation, and how they compare with DCP's synced save or its load from the same cache."""
    gigabytes = report.total_bytes / 1e9
    measured = by_operation(report.readings, first=False)
    speeds = {name: gigabytes / median(_walls(readings)) for name, readings in measured.items()}
    stored = f"a save stores {report.stored_share:.0%} of its bytes"
    table = Table(title=f"{gigabytes:.2f} GB over all ranks, medians of {len(measured['save'])}; {stored}")
    table.add_column("operation")
    for column in (
        "GB/s", "slowest-fastest", "of DCP", "blocked s", "ranks' CPU s/GB", "service CPU s/GB", "extra MiB a rank",
        "service peak MiB",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for name, readings in measured.items():
        walls = _walls(readings)
        ours = not name.startswith(("DCP", "plain"))
        table.add_row(
            name,
            f"{speeds[name]:.2f}",
            f"{gigabytes / max(walls):.2f}-{gigabytes / min(walls):.2f}",
            f"{speeds[name] / speeds[_peer_of(name)]:.2f}",
            f"{_median(readings, lambda reading: reading.blocked_seconds):.3f}",
            f"{_median(readings, lambda reading: reading.cpu_seconds) / gigabytes:.2f}",
            f"{_median(readings, lambda reading: reading.service_cpu_seconds) / gigabytes:.2f}" if ours else "",
            f"{max(reading.extra_bytes for reading in readings) / (1 << 20):,.0f}",
            f"{max(reading.service_peak_bytes for reading in readings) / (1 << 20):,.0f}" if ours else "",
        )
    console.print(table)


def show_first(console: Console, report: JobReport) -> None:
    """The first of each, which pays for fresh memory."""
    table = Table(title="the first of each")
    table.add_column("operation")
    for column in ("wall s", "blocked s", "extra MiB a rank"):
        table.add_column(column, justify="right")
    for name, (reading, *_) in by_operation(report.readings, first=True).items():
        table.add_row(
            name, f"{reading.wall_seconds:.2f}", f"{reading.blocked_seconds:.3f}",
            f"{reading.extra_bytes / (1 << 20):,.0f}",
        )  # fmt: skip
    console.print(table)


def by_operation(readings: Sequence[Reading], *, first: bool) -> dict[str, list[Reading]]:
    """Readings by operation, in the order of their first turn; either the first of each or all others."""
    found: defaultdict[str, list[Reading]] = defaultdict(list)
    for reading in readings:
        if (reading.repetition == 0) is first:
            found[reading.operation].append(reading)
    return dict(found)


def _peer_of(name: str) -> str:
    if "load" in name:
        return f"{_PEERS['load']}, {name.rpartition(', ')[2]}"
    return _PEERS["save"]


def _walls(readings: Sequence[Reading]) -> list[float]:
    return [reading.wall_seconds for reading in readings]


def _median(readings: Sequence[Reading], value: Callable[[Reading], float]) -> float:
    return median(value(reading) for reading in readings)
