"""The tables that `bench.service` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.service_turns import Kind, Turn

CEILINGS = {
    ("save", True): "bare presigned PUTs",
    ("load", True): "bare presigned GETs",
    ("save", False): "plain files, synced",
}
COLUMNS = (
    "GB/s", "slowest-fastest", "of the ceiling", "client CPU s/GB", "service CPU s/GB", "store CPU s/GB",
    "service peak MiB", "over idle MiB",
)  # fmt: skip


def show(console: Console, turns: Sequence[Turn], *, total_bytes: int, uploads: int, budget_bytes: int) -> None:
    """One table a kind and store; medians, and the ratio to the ceiling measured in the same run."""
    console.print(
        f"{total_bytes / 1e9:.2f} GB in chunks of 32 MiB, {uploads} transfers at a time, "
        f"upload budget of the service {budget_bytes >> 20} MiB"
    )
    for kind, on_s3, store in (
        ("save", True, "SeaweedFS"),
        ("save", False, "file system"),
        ("load", True, "SeaweedFS"),
    ):
        chosen = [turn for turn in turns if turn.kind == kind and turn.on_s3 is on_s3 and turn.repetition]
        _show(console, chosen, f"{kind}, {store}", ceiling=CEILINGS[kind, on_s3], total_bytes=total_bytes)


def speed(turns: Sequence[Turn], operation: str, kind: Kind, *, total_bytes: int) -> float:
    """Median GB/s of one operation."""
    return total_bytes / 1e9 / median(_of(turns, operation, kind, lambda turn: turn.wall_seconds))


def _show(console: Console, turns: Sequence[Turn], title: str, *, ceiling: str, total_bytes: int) -> None:
    gigabytes = total_bytes / 1e9
    table = Table(title=f"{title}; medians of {max(turn.repetition for turn in turns)}")
    table.add_column("operation")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    top = speed(turns, ceiling, turns[0].kind, total_bytes=total_bytes)
    for operation in dict.fromkeys(turn.operation for turn in turns):
        kind = turns[0].kind
        walls = _of(turns, operation, kind, lambda turn: turn.wall_seconds)
        found = speed(turns, operation, kind, total_bytes=total_bytes)
        ours = operation != ceiling
        table.add_row(
            operation,
            f"{found:.3f}",
            f"{gigabytes / max(walls):.3f}-{gigabytes / min(walls):.3f}",
            f"{found / top:.2f}",
            f"{median(_of(turns, operation, kind, lambda turn: turn.client_cpu_seconds)) / gigabytes:.2f}",
            f"{median(_of(turns, operation, kind, lambda turn: turn.service_cpu_seconds)) / gigabytes:.2f}"
            if ours
            else "",
            f"{median(_of(turns, operation, kind, lambda turn: turn.store_cpu_seconds)) / gigabytes:.2f}"
            if turns[0].on_s3
            else "",
            f"{max(_of(turns, operation, kind, lambda turn: turn.service_peak_bytes)) / (1 << 20):,.0f}"
            if ours
            else "",
            f"{max(_of(turns, operation, kind, lambda turn: turn.service_extra_bytes)) / (1 << 20):,.0f}"
            if ours
            else "",
        )
    console.print(table)


def _of(turns: Sequence[Turn], operation: str, kind: Kind, value: Callable[[Turn], float]) -> list[float]:
    return [value(turn) for turn in turns if turn.operation == operation and turn.kind == kind]
