"""The production plane: bytes streamed through the service and sent directly, beside bare presigned transfers.

Run as `python -m bench.service`. A real PostgreSQL, a real SeaweedFS and three services run on this machine: direct to
SeaweedFS, streamed to SeaweedFS, streamed to the file system. One client saves and loads the same state through each in
turns, 16 transfers at a time, and sends the same bytes by bare presigned PUTs: the ceiling. Printed are GB/s, CPU of
client, service and store for each GB, the service's peak memory, and the ratios to the ceiling of the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from bench.processes import resident_bytes
from bench.service_tables import show
from bench.service_turns import CHUNK_BYTES, Plan, ServiceUnderTest, Turn
from tests.servers.cluster import Cluster
from tests.servers.postgres import Postgres
from tests.servers.seaweedfs import SeaweedFS

_LIMIT_SECONDS = 1_800


def measure(options: argparse.Namespace, folder: Path) -> list[Turn]:
    """All turns."""
    with ExitStack() as stack:
        store = stack.enter_context(SeaweedFS(folder / "s3", volume_megabytes=1024))
        postgres = Postgres()
        stack.callback(postgres.close)
        postgres.start()
        bucket = store.environment(store.new_bucket())
        budget = {"SHARDKEEP_SERVICE_UPLOAD_BUDGET_BYTES": str(options.budget)}
        ways = {
            "direct": {**bucket, "SHARDKEEP_SERVICE_S3_PREFIX": "direct", "SHARDKEEP_SERVICE_DIRECT": "always"},
            "streamed": {**bucket, "SHARDKEEP_SERVICE_S3_PREFIX": "streamed", "SHARDKEEP_SERVICE_DIRECT": "never"},
            "streamed to files": {},
        }
        services = [
            stack.enter_context(_service(way, folder, postgres.new_database(), {**env, **budget}))
            for way, env in ways.items()
        ]
        plan = Plan(services, store.pid, str(folder), options.bytes, options.uploads, options.repetitions)
        return _run(plan, folder, bucket)


@contextmanager
def _service(way: str, folder: Path, database_url: str, env: dict[str, str]) -> Iterator[ServiceUnderTest]:
    cluster = Cluster(folder / way.replace(" ", "-"), database_url, replicas=1, env=env)
    try:
        (replica,) = cluster.start(worker=False).replicas
        on_s3 = any(name.startswith("SHARDKEEP_SERVICE_S3_") for name in env)
        yield ServiceUnderTest(way, replica.url, cluster.token, replica.pid, on_s3, resident_bytes(replica.pid))
    finally:
        cluster.stop()


def _run(plan: Plan, folder: Path, bucket: dict[str, str]) -> list[Turn]:
    path = folder / "plan.json"
    path.write_text(json.dumps(asdict(plan)))
    done = subprocess.run(
        [sys.executable, "-m", "bench.service_turns", str(path)],
        env={**os.environ, **bucket},
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the client ended with {done.returncode}")
    return [Turn(**turn) for turn in json.loads(path.with_suffix(".turns.json").read_text())]


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.service", description=__doc__)
    parser.add_argument("--bytes", type=int, default=16 * CHUNK_BYTES, help="size of the state (default 512 MiB)")
    parser.add_argument("--uploads", type=int, default=16, help="transfers at a time (default 16)")
    parser.add_argument("--budget", type=int, default=256 << 20, help="upload budget of the services (default 256 MiB)")
    parser.add_argument("--repetitions", type=int, default=3, help="measured times of each, after a first (default 3)")
    parser.add_argument("--directory", type=Path, help="where to put the data (default: the temporary directory)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    """Measures and prints."""
    options = parse_arguments(arguments)
    console = Console(stderr=options.json, width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory(prefix="shardkeep-bench-", dir=options.directory) as folder:
        turns = measure(options, Path(folder))
    show(console, turns, total_bytes=options.bytes, uploads=options.uploads, budget_bytes=options.budget)
    if options.json:
        print(json.dumps([asdict(turn) for turn in turns], indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
