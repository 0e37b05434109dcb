"""Running the real command in a process of its own, and making checkpoints for it to look at."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from shardkeep.format.names import join_name
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind, ValueRecord
from shardkeep.format.values import encode_value
from shardkeep.protocol.identifiers import new_launch_id
from shardkeep.store.checkpoint import Checkpoint
from shardkeep.store.connect import Client, connect
from shardkeep.store.save_handle import SaveHandle
from shardkeep.store.world import World
from tests.service_process import ServiceProcess
from tests.warm_process import run_program

COMMAND = (sys.executable, "-m", "shardkeep.cli.main")
# The command line must never need torch: importing it fails in every process these tests start.
NO_TORCH = "import sys\nsys.modules['torch'] = None\n"
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.err.splitlines()[-1])["error"]
        return found


@dataclass(frozen=True)
class CommandLine:
    """`shardkeep` against one service, with torch blocked."""

    service: ServiceProcess
    no_torch: Path

    def environment(self, changes: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**self.service.environment(), "PYTHONPATH": str(self.no_torch), **(changes or {})}

    def __call__(self, *arguments: object, env: Mapping[str, str] | None = None, stdin: str = "") -> Done:
        words = map(str, arguments)
        done = run_program("shardkeep", *words, env=self.environment(env), stdin=stdin, without=("torch",))
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: object) -> Done:
        done = self(*arguments)
        assert done.code == 0, done
        return done

    def client(self) -> Client:
        return connect(self.service.url, self.service.token)


@dataclass(frozen=True)
class Part:
    """What one rank holds of one tensor."""

    name: str
    shape: tuple[int, ...]
    region: Region
    array: Array
    dtype: str | None = None
    kind: SliceKind = SliceKind.PARAMETER


def whole(name: str, array: Array, *, dtype: str | None = None, kind: SliceKind = SliceKind.PARAMETER) -> Part:
    return Part(name, array.shape, Region.whole(array.shape), array, dtype, kind)


def save(
    client: Client,
    run: str,
    step: int,
    ranks: Sequence[Sequence[Part]],
    values: Mapping[tuple[str, ...], object] | None = None,
) -> Checkpoint:
    """A committed checkpoint with one entry of `ranks` a rank, in an attempt of its own."""
    launch_id = new_launch_id()
    handles: list[SaveHandle] = []

    def rank_saves(rank: int) -> None:
        attempt = client.run(run).begin_attempt(World(rank, len(ranks), launch_id), 0)
        attempt.decide_resume(fresh=True)
        with attempt.start_save(step, expected_bytes=sum(part.array.nbytes for part in ranks[rank])) as writer:
            for part in ranks[rank]:
                data = memoryview(part.array.tobytes())

                def fill(start: int, out: memoryview, data: memoryview = data) -> None:
                    out[:] = data[start : start + len(out)]

                dtype = part.dtype or part.array.dtype.name
                writer.stage(part.name, dtype, part.shape, part.region, part.kind, fill=fill)
            records = [
                ValueRecord(join_name(path), encode_value(value), per_rank=False)
                for path, value in sorted((values or {}).items())
            ]
            handles.append(writer.finish(records, {"loss": 0.5}, {}))
        handles[-1].wait(60)
        attempt.close()

    threads = [threading.Thread(target=rank_saves, args=(rank,)) for rank in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return handles[0].wait(60)


def stored_chunks(service: ServiceProcess) -> list[Path]:
    """The files that hold chunks, the largest first."""
    found = [path for path in service.data_dir.rglob("*") if path.is_file() and "chunks" in path.parts]
    return sorted(found, key=lambda path: path.stat().st_size, reverse=True)
