"""The tables that `bench.metadata` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.phases import Phase
from bench.sampler import Cost
from bench.simulated_checkpoint import Scale

_COSTS_SHOWN = 14
_WAITS_SHOWN = 4
_COMMIT_PHASES = ("open", "negotiate", "manifests", "validate, commit", "tell ranks")


def show_phases(console: Console, scale: Scale, phases: Sequence[Phase]) -> None:
    """One row a phase, and the sums of commit and load."""
    table = Table(title=f"{scale.ranks} ranks commit, {scale.load_ranks} ranks load")
    table.add_column("phase")
    for column in (
        "wall s", "service CPU s", "CPU ms a rank", "simulated ranks CPU s", "requests", "MB in", "MB out", "peak MiB"
    ):  # fmt: skip
        table.add_column(column, justify="right")
    committing = [phase for phase in phases if phase.name in _COMMIT_PHASES]
    loading = [phase for phase in phases if phase.name not in _COMMIT_PHASES]
    for name, group, ranks in (("commit", committing, scale.ranks), ("load plans", loading, scale.load_ranks)):
        for phase in group:
            table.add_row(*_cells(phase, ranks))
        table.add_row(*_cells(summed(f"= {name}", group), ranks), style="bold", end_section=True)
    console.print(table)


def summed(name: str, phases: Sequence[Phase]) -> Phase:
    """Several phases as one; the peak is the highest."""
    return Phase(
        name,
        sum(phase.wall_seconds for phase in phases),
        sum(phase.service_cpu_seconds for phase in phases),
        sum(phase.client_cpu_seconds for phase in phases),
        sum(phase.requests for phase in phases),
        sum(phase.sent_bytes for phase in phases),
        sum(phase.received_bytes for phase in phases),
        max(phase.peak_bytes for phase in phases),
    )


def show_growth(console: Console, results: Sequence[tuple[int, Sequence[Phase]]]) -> None:
    """How CPU grows with the number of ranks: 1 is linear, 2 quadratic."""
    if len(results) < 2:
        return
    (few, before), (many, after) = results[0], results[-1]
    table = Table(title=f"growth from {few} to {many} ranks (exponent: 1.0 is linear)")
    for column in ("phase", f"service CPU s at {few}", f"at {many}", "exponent", "peak MiB exponent"):
        table.add_column(column, justify="left" if column == "phase" else "right")
    for old, new in zip(before, after, strict=True):
        table.add_row(
            old.name, f"{old.service_cpu_seconds:.2f}", f"{new.service_cpu_seconds:.2f}",
            _exponent(old.service_cpu_seconds, new.service_cpu_seconds, few, many),
            _exponent(old.peak_bytes, new.peak_bytes, few, many),
        )  # fmt: skip
    console.print(table)


def show_costs(console: Console, title: str, costs: Sequence[Cost]) -> None:
    """The largest costs of a profile, which come by CPU; below them, where threads were longest beside those."""
    table = Table(title=title)
    table.add_column("where")
    total = sum(cost.cpu_seconds for cost in costs)
    for column in (f"CPU s (of {total:.1f})", "thread s"):
        table.add_column(column, justify="right")
    longest = sorted(costs[_COSTS_SHOWN:], key=lambda cost: -cost.thread_seconds)[:_WAITS_SHOWN]
    for group in (costs[:_COSTS_SHOWN], longest):
        for cost in group:
            table.add_row(cost.where, f"{cost.cpu_seconds:.2f}", f"{cost.thread_seconds:.1f}")
        table.add_section()
    console.print(table)


def _cells(phase: Phase, ranks: int) -> tuple[str, ...]:
    return (
        phase.name,
        f"{phase.wall_seconds:.2f}",
        f"{phase.service_cpu_seconds:.2f}",
        f"{1000 * phase.service_cpu_seconds / ranks:.2f}",
        f"{phase.client_cpu_seconds:.2f}",
        f"{phase.requests:,}",
        f"{phase.sent_bytes / 1e6:.1f}",
        f"{phase.received_bytes / 1e6:.1f}",
        f"{phase.peak_bytes / (1 << 20):,.0f}",
    )


def _exponent(old: float, new: float, few: int, many: int) -> str:
    if old <= 0 or new <= 0:
        return "-"
    return f"{math.log(new / old) / math.log(many / few):.2f}"
