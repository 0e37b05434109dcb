"""The control plane at scale: simulated ranks commit one checkpoint and load it on three quarters as many ranks.

Run as `python -m bench.metadata`. A real service process with SQLite (or, with `--postgres`, a real PostgreSQL) and a
file-system store answers real requests: every rank opens, negotiates, hands in its manifest and long-polls until the
commit, as the client does. The bytes of chunks are not the point: their rows are written into the database as stored
and verified before the clock starts, so negotiation answers `present`; manifests and load requests are encoded before
it starts, too. The service is restarted between commit and load, so that the index is read from the store.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from bench.connections import Traffic
from bench.metadata_tables import show_costs, show_growth, show_phases
from bench.phases import Phase, PhaseMeter
from bench.processes import cpu_seconds_of_server, tree_bytes
from bench.running_service import running_service
from bench.sampler import Cost
from bench.seeding import seed_chunks
from bench.simulated_checkpoint import Scale, load_requests, segments_of, simulated_ranks
from bench.simulated_training import commit, make_run, plan_all
from tests.servers.postgres import Postgres


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


def measure(scale: Scale, folder: Path, *, database_url: str | None, profile: bool) -> ScaleResult:
    """Prepares, seeds and runs one scale, on SQLite in the folder or on an empty PostgreSQL database."""
    traffic = Traffic()
    data_dir = folder / "data"
    profiles = {name: folder / f"{name}.json" for name in ("commit", "load")} if profile else {}
    ranks = list(simulated_ranks(scale))
    with running_service(data_dir, database_url=database_url, profile=profiles.get("commit")) as service:
        project_id, run_id = asyncio.run(make_run(service))
        seeded = database_url or f"sqlite:///{data_dir / 'shardkeep.db'}"
        seed_chunks(seeded, ranks, project_id=project_id, run_id=run_id)
        committing = PhaseMeter(service.pid, traffic)
        checkpoint = asyncio.run(commit(service, scale, ranks, committing))
    manifest_bytes = sum(len(rank.manifest) for rank in ranks)
    ranks.clear()
    requests = list(load_requests(scale))
    with running_service(data_dir, database_url=database_url, profile=profiles.get("load")) as service:
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
    databases = parser.add_mutually_exclusive_group()
    databases.add_argument("--postgres", action="store_true", help="on a PostgreSQL started from its wheel")
    databases.add_argument("--database-url", help="on this PostgreSQL, where each scale makes a database of its own")
    parser.add_argument("--profile", action="store_true", help="sample the service and show where its time goes")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args(arguments)


def measure_on_server(scale: Scale, server: Postgres | None, *, profile: bool, console: Console) -> ScaleResult:
    """One scale, in a folder and, where there is a server, a database of its own."""
    with tempfile.TemporaryDirectory(prefix="shardkeep-bench-") as folder:
        if server is None:
            return measure(scale, Path(folder), database_url=None, profile=profile)
        database_url = server.new_database()
        before = cpu_seconds_of_server(server.pid) if server.is_ours else 0.0
        result = measure(scale, Path(folder), database_url=database_url, profile=profile)
        if server.is_ours:
            seconds = cpu_seconds_of_server(server.pid) - before
            console.print(f"the database server took {seconds:.1f} s of CPU, seeding included")
        server.drop_database(database_url)
        return result


@contextlib.contextmanager
def database_server(options: argparse.Namespace) -> Iterator[Postgres | None]:
    """The PostgreSQL that the options ask for; its commits are durable."""
    if not options.postgres and options.database_url is None:
        yield None
        return
    server = Postgres(options.database_url, settings={"fsync": "on", "full_page_writes": "on"})
    try:
        yield server.start()
    finally:
        server.close()


def main(arguments: Sequence[str]) -> None:
    options = parse_arguments(arguments)
    console = Console(stderr=options.json, width=None if sys.stdout.isatty() else 150)
    results = []
    with database_server(options) as server:
        for ranks in options.ranks:
            scale = Scale(ranks, options.slices, options.chunks, options.slice_bytes)
            console.print(f"{ranks} ranks, {scale.slices} slices and {scale.chunks} chunks each; chunk rows are seeded")
            results.append(measure_on_server(scale, server, profile=options.profile, console=console))
            show_result(console, results[-1])
    show_growth(console, [(result.scale.ranks, result.phases) for result in results])
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))


def show_result(console: Console, result: ScaleResult) -> None:
    show_phases(console, result.scale, result.phases)
    for name, costs in result.profiles.items():
        show_costs(console, f"where the service's time goes: {name}, {result.scale.ranks} ranks", costs)
    console.print(
        f"manifests {result.manifest_bytes / 1e6:.1f} MB, index {result.index_bytes / 1e6:.1f} MB of"
        f" {result.segments:,} segments; {result.busy_answers} requests were answered busy and sent again"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
