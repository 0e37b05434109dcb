"""The control plane at scale: simulated ranks commit one checkpoint and load it on three quarters as many ranks.

Run as `python -m bench.metadata`. A real service process with SQLite and a file-system store answers real requests:
every rank opens, negotiates, hands in its manifest and long-polls until the commit, as the client does. The bytes of
chunks are not the point: their rows are written into the database as stored and verified before the clock starts, so
negotiation answers `present`; manifests and load requests are encoded before it starts, too. The service is restarted
between commit and load, so that the index is read from the store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from bench.connections import Traffic
from bench.metadata_tables import show_costs, show_growth, show_phases
from bench.phases import Phase, PhaseMeter
from bench.processes import tree_bytes
from bench.sampler import Cost
from bench.seeding import seed_chunks
from bench.service import running_service
from bench.simulated_checkpoint import Scale, load_requests, segments_of, simulated_ranks
from bench.simulated_training import commit, make_run, plan_all


@dataclass(frozen=True, slots=True)
class ScaleResult:
    """What one scale cost. `profiles` are by service process (`commit`, `load`), empty unless asked for."""

    scale: Scale
    segments: int
    phases: list[Phase]
    busy_answers: int
    manifest_bytes: int
    index_bytes: int
    profiles: dict[str, list[Cost]]


def measure(scale: Scale, folder: Path, *, profile: bool) -> ScaleResult:
    """Prepares, seeds and runs one scale."""
    traffic = Traffic()
    data_dir = folder / "data"
    profiles = {name: folder / f"{name}.json" for name in ("commit", "load")} if profile else {}
    ranks = list(simulated_ranks(scale))
    with running_service(data_dir, profile=profiles.get("commit")) as service:
        project_id, run_id = asyncio.run(make_run(service))
        seed_chunks(data_dir, ranks, project_id=project_id, run_id=run_id)
        committing = PhaseMeter(service.pid, traffic)
        checkpoint = asyncio.run(commit(service, scale, ranks, committing))
    manifest_bytes = sum(len(rank.manifest) for rank in ranks)
    ranks.clear()
    requests = list(load_requests(scale))
    with running_service(data_dir, profile=profiles.get("load")) as service:
        planning = PhaseMeter(service.pid, traffic)
        asyncio.run(plan_all(service, checkpoint, requests, planning))
    return ScaleResult(
        scale=scale,
        segments=segments_of(scale),
        phases=[*committing.phases, *planning.phases],
        busy_answers=traffic.busy_answers,
        manifest_bytes=manifest_bytes,
        index_bytes=tree_bytes(data_dir / "blobs" / "objects" / project_id / "indexes"),
        profiles={name: _read_profile(path) for name, path in profiles.items()},
    )


def _read_profile(path: Path) -> list[Cost]:
    return [Cost(**cost) for cost in json.loads(path.read_text())]


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.metadata", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[128, 512, 1024], help="numbers of ranks to run")
    parser.add_argument("--slices", type=int, default=3_000, help="slices of each rank (default 3000)")
    parser.add_argument("--chunks", type=int, default=300, help="chunks of each rank (default 300)")
    parser.add_argument("--slice-bytes", type=int, default=3 << 20, help="size of each slice (default 3 MiB)")
    parser.add_argument("--profile", action="store_true", help="sample the service and show where its time goes")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    options = parse_arguments(arguments)
    console = Console(stderr=options.json, width=None if sys.stdout.isatty() else 150)
    results = []
    for ranks in options.ranks:
        scale = Scale(ranks, options.slices, options.chunks, options.slice_bytes)
        console.print(f"{ranks} ranks, {scale.slices} slices and {scale.chunks} chunks each; chunk rows are seeded")
        with tempfile.TemporaryDirectory(prefix="shardkeep-bench-") as folder:
            result = measure(scale, Path(folder), profile=options.profile)
        results.append(result)
        show_phases(console, result.scale, result.phases)
        for name, costs in result.profiles.items():
            show_costs(console, f"where the service's time goes: {name}, {ranks} ranks", costs)
        console.print(
            f"manifests {result.manifest_bytes / 1e6:.1f} MB, index {result.index_bytes / 1e6:.1f} MB of"
            f" {result.segments:,} segments; {result.busy_answers} requests were answered busy and sent again"
        )
    show_growth(console, [(result.scale.ranks, result.phases) for result in results])
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
