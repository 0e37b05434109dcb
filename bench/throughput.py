"""Saving and loading sharded float32 weights and AdamW moments, beside PyTorch's own checkpoints (DCP).

Run as `python -m bench.throughput`. Two processes (gloo, one torch thread each) hold DTensors sharded by rows. In
turns, on the same state and disk, they save through `sk.Checkpointer` and a real service process (SQLite, file-system
store), write plain files, and save by `torch.distributed.checkpoint`; then they load. Before each measurement the
disk's queue is emptied by `sync`, and after each load the bytes are compared. Figures are medians; the first of each
is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from bench.metadata_tables import show_costs
from bench.rank_job import JobReport, run_ranks
from bench.running_service import Service, running_service
from bench.sampler import Cost
from bench.throughput_tables import show_first, show_operations


def measure(options: argparse.Namespace, folder: Path) -> JobReport:
    """All operations, in turns."""
    with running_service(folder / "data") as service:
        return _run(options, service, folder, profile=None)


def profile(options: argparse.Namespace, folder: Path) -> dict[str, tuple[JobReport, list[Cost]]]:
    """Saves, then loads, with the ranks and the service under the sampler; of each the ranks' report and the service's
    costs.
    """
    found = {}
    for what in ("save", "load"):
        path = folder / f"service-{what}.json"
        with running_service(folder / "data", profile=path) as service:
            report = _run(options, service, folder, profile=what)
        found[what] = (report, [Cost(**cost) for cost in json.loads(path.read_text())])
    return found


def _run(options: argparse.Namespace, service: Service, folder: Path, *, profile: str | None) -> JobReport:
    return run_ranks(
        service,
        folder,
        ranks=options.ranks,
        total_bytes=options.bytes,
        repetitions=options.repetitions,
        codec=options.codec,
        profile=profile,
    )


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.throughput", description=__doc__)
    parser.add_argument("--bytes", type=int, default=10**9, help="size of the state over all ranks (default 1 GB)")
    parser.add_argument("--ranks", type=int, default=2, help="number of ranks (default 2)")
    parser.add_argument("--repetitions", type=int, default=5, help="measured times of each, after a first (default 5)")
    parser.add_argument("--codec", choices=("auto", "raw", "zstd", "planes"), default="auto", help="default auto")
    parser.add_argument("--directory", type=Path, help="where to put the data (default: the temporary directory)")
    parser.add_argument("--profile", action="store_true", help="instead sample Shardkeep's saves and loads")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    options = parse_arguments(arguments)
    console = Console(stderr=options.json, width=None if sys.stdout.isatty() else 150)
    with tempfile.TemporaryDirectory(prefix="shardkeep-bench-", dir=options.directory) as folder:
        if options.profile:
            profiles = profile(options, Path(folder))
            for what, (report, costs) in profiles.items():
                gigabytes = report.total_bytes * len(report.readings) / 1e9
                show_costs(console, f"{what}: both ranks, {gigabytes - report.total_bytes / 1e9:.1f} GB", report.costs)
                show_costs(console, f"{what}: service, {gigabytes:.1f} GB", costs)
            found: object = {
                what: {"ranks": asdict(report), "service": [asdict(cost) for cost in costs]}
                for what, (report, costs) in profiles.items()
            }
        else:
            result = measure(options, Path(folder))
            show_operations(console, result)
            show_first(console, result)
            found = asdict(result)
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
