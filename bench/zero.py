"""Training steps and bytes on the wire of the sharded optimizer, beside PyTorch's own ways.

Run as `python -m bench.zero`. Two processes (gloo over loopback, one torch thread each) train one model, in turns, with
DDP and AdamW, with ZeroRedundancyOptimizer, with FSDP2, and with `ShardedOptimizer` at each stage and offload; NVMe is
compared with moments in memory-mapped files. All must come to the same losses. Times are medians of the runs, CPU is
that of all ranks; bytes are those of the loopback device, of the run with the fewest, as others may use it too.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.rank_job import run_rank_processes
from bench.zero_contenders import BASELINE

_MEBIBYTE = 1 << 20
_SLOWEST = ("step_seconds", "optimizer_seconds")


@dataclass(frozen=True, slots=True)
class Row:
    """One contender: medians of the slowest rank's times and of all ranks' CPU, and the least bytes of all ranks."""

    contender: str
    step_seconds: float
    fastest_seconds: float
    slowest_seconds: float
    optimizer_seconds: float
    cpu_seconds: float
    wire_bytes: float


@dataclass(frozen=True, slots=True)
class Measured:
    """All contenders in one run."""

    parameters: int
    ranks: int
    rows: list[Row]


def measure(options: argparse.Namespace, folder: Path) -> Measured:
    """Runs the ranks to their end."""
    stem = folder / "rank"
    sizes = {"width": options.width, "blocks": options.blocks, "rows": options.rows}
    counts = {"steps": options.steps, "runs": options.runs, "budget-bytes": round(options.budget_mb * _MEBIBYTE)}
    numbers = [text for name, value in {**sizes, **counts}.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "bench.zero_rank", "--report", str(stem), "--folder", str(folder), *numbers]
    command += ["--only", options.only] if options.only else []
    run_rank_processes(command, stem, ranks=options.ranks, environment={})
    reports = [json.loads(Path(f"{stem}.{rank}.json").read_text()) for rank in range(options.ranks)]
    return Measured(reports[0]["parameters"], options.ranks, _rows([report["readings"] for report in reports]))


def _rows(by_rank: Sequence[Sequence[dict[str, Any]]]) -> list[Row]:
    runs: defaultdict[str, list[Sequence[dict[str, Any]]]] = defaultdict(list)
    for same in zip(*by_rank, strict=True):
        runs[same[0]["contender"]].append(same)
    return [_row(name, found) for name, found in runs.items()]


def _row(name: str, runs: Sequence[Sequence[dict[str, Any]]]) -> Row:
    steps, in_optimizer = ([max(one[key] for one in same) for same in runs] for key in _SLOWEST)
    cpu = median(sum(one["cpu_seconds"] for one in same) for same in runs)
    wire = min(one["wire_bytes"] for same in runs for one in same)
    return Row(name, median(steps), min(steps), max(steps), median(in_optimizer), cpu, wire)


def show(console: Console, measured: Measured) -> None:
    """A table, with ratios to DDP."""
    base = next(row for row in measured.rows if row.contender == BASELINE)
    count = f"{measured.parameters / 1e6:.1f} M fp32 parameters on {measured.ranks} ranks"
    table = Table(title=f"{count}: seconds a step, medians")
    table.add_column("", no_wrap=True)
    for column in ("step s", "of DDP", "fastest-slowest", "in step() s", "CPU s", "of DDP", "MB on the wire", "of DDP"):
        table.add_column(column, justify="right")
    for row in measured.rows:
        table.add_row(
            row.contender,
            f"{row.step_seconds:.3f}",
            f"{row.step_seconds / base.step_seconds:.2f}",
            f"{row.fastest_seconds:.3f}-{row.slowest_seconds:.3f}",
            f"{row.optimizer_seconds:.3f}",
            f"{row.cpu_seconds:.2f}",
            f"{row.cpu_seconds / base.cpu_seconds:.2f}",
            f"{row.wire_bytes / 1e6:.1f}",
            f"{row.wire_bytes / base.wire_bytes:.2f}",
        )
    console.print(table)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.zero", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="default 2")
    parser.add_argument(
        "--width", type=int, default=512, help="of a block, which has 8 width^2 parameters (default 512)"
    )
    parser.add_argument("--blocks", type=int, default=12, help="default 12: with width 512, 25 million parameters")
    parser.add_argument("--rows", type=int, default=128, help="of data, a rank and step (default 128)")
    parser.add_argument("--steps", type=int, default=3, help="in one run (default 3)")
    parser.add_argument("--runs", type=int, default=5, help="of each, in turns, after a first (default 5)")
    parser.add_argument("--budget-mb", type=float, default=48, help="of NvmeOffload, a rank (default 48)")
    parser.add_argument("--only", help="regular expression: only contenders whose name it matches, and DDP")
    parser.add_argument("--directory", type=Path, help="where to put files (default: the temporary directory)")
    parser.add_argument("--quick", action="store_true", help="a small model and one run: does it work")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    if options.quick:
        options.width, options.blocks, options.rows, options.steps, options.runs = 128, 3, 16, 1, 1
    return options


def main(arguments: Sequence[str]) -> None:
    options = parse_arguments(arguments)
    console = Console(stderr=options.json, width=None if sys.stdout.isatty() else 150)
    with tempfile.TemporaryDirectory(prefix="shardkeep-bench-", dir=options.directory) as folder:
        measured = measure(options, Path(folder))
    show(console, measured)
    if options.json:
        print(json.dumps(asdict(measured), indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
