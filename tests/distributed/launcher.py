"""Ranks as real processes: forked from a server that has torch loaded, joined by gloo, bounded in time."""

from __future__ import annotations

import importlib
import io
import logging
import multiprocessing
import os
import signal
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from tests.warm_process import forkserver

GROUP_SECONDS = 120


@dataclass(frozen=True, slots=True)
class RankResult:
    """What one rank came to: the function's value, or the traceback; and what it logged meanwhile."""

    rank: int
    value: Any
    error: str | None
    log: str


class Ranks:
    """A launch: `world_size` processes in one gloo group that run functions until they are closed.

    Functions are a module's own; they get (rank, world_size, **arguments). `env` adds to each rank's environment.
    """

    def __init__(self, world_size: int, *, directory: Path, env: Mapping[str, str] | None = None) -> None:
        context = forkserver()
        directory.mkdir(parents=True, exist_ok=True)
        rendezvous = str(directory / f"rendezvous-{uuid.uuid4().hex}")
        self.world_size = world_size
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        for rank in range(world_size):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(rank, world_size, rendezvous, dict(env or {}), there))
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def send_signal(self, rank: int, signum: int) -> None:
        """Send a signal to one rank."""
        os.kill(cast("int", self._processes[rank].pid), signum)

    def start(self, function: Callable[..., Any], **arguments: Any) -> None:
        """Let every rank run a function; `results` or `values` must follow."""
        for pipe in self._pipes:
            pipe.send((function.__module__, function.__qualname__, arguments))

    def results(self, *, timeout_seconds: float = 200) -> list[RankResult]:
        """What every rank came to; one that says nothing in time is killed."""
        return [self._result(rank, timeout_seconds) for rank in range(self.world_size)]

    def values(self, *, timeout_seconds: float = 200) -> list[Any]:
        """The values of all ranks; AssertionError with the tracebacks and logs when any failed."""
        results = self.results(timeout_seconds=timeout_seconds)
        failed = [result for result in results if result.error is not None]
        if failed:
            self.kill()
        assert not failed, "\n".join(f"--- rank {each.rank}\n{each.error}\n{each.log[-3000:]}" for each in failed)
        return [result.value for result in results]

    def run(self, function: Callable[..., Any], *, timeout_seconds: float = 200, **arguments: Any) -> list[Any]:
        """`start` and `values`."""
        self.start(function, **arguments)
        return self.values(timeout_seconds=timeout_seconds)

    @property
    def alive(self) -> bool:
        """Whether every rank still runs."""
        return all(process.is_alive() for process in self._processes)

    def exit_codes(self) -> list[int | None]:
        """Of ranks that ended; -signal when they were ended by one."""
        return [process.exitcode for process in self._processes]

    def close(self) -> None:
        """Let the ranks leave; those that do not are killed."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(30)
        self.kill()

    def kill(self) -> None:
        """End all ranks now."""
        for process in self._processes:
            if process.is_alive():
                process.kill()
            process.join(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _result(self, rank: int, timeout_seconds: float) -> RankResult:
        pipe = self._pipes[rank]
        if not wait([pipe], timeout_seconds):
            self._processes[rank].kill()
            return RankResult(rank, None, f"killed after {timeout_seconds} s", "")
        try:
            value, error, log = pipe.recv()
        except EOFError:
            return RankResult(rank, None, "ended without a word", "")
        return RankResult(rank, value, error, log)


class RankPools:
    """Launches kept for the tests of a module, one for each world size; one that lost a rank is started anew."""

    def __init__(self, *, directory: Path, env: Mapping[str, str]) -> None:
        self._directory = directory
        self._env = env
        self._launches: dict[int, Ranks] = {}

    def of(self, world_size: int) -> Ranks:
        """A launch of this size. A torch process group lasts, a Checkpointer's launch id does not."""
        launch = self._launches.get(world_size)
        if launch is None or not launch.alive:
            launch = self._launches[world_size] = Ranks(world_size, directory=self._directory, env=self._env)
        return launch

    def close(self) -> None:
        """End all launches."""
        for launch in self._launches.values():
            launch.close()


def run_ranks(
    function: Callable[..., Any],
    world_size: int,
    *,
    directory: Path,
    env: Mapping[str, str] | None = None,
    timeout_seconds: float = 200,
    **arguments: Any,
) -> list[Any]:
    """One launch for one function: its values in order of rank."""
    with Ranks(world_size, directory=directory, env=env) as ranks:
        return ranks.run(function, timeout_seconds=timeout_seconds, **arguments)


def _serve(rank: int, world_size: int, rendezvous: str, env: dict[str, str], pipe: Connection) -> None:
    import torch
    import torch.distributed as dist

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    multiprocessing.set_start_method("fork", force=True)  # for loaders' workers: as in a program started by itself
    os.environ.update(env)
    torch.set_num_threads(1)
    log = io.StringIO()
    logging.basicConfig(level=logging.INFO, stream=log, format=f"[rank {rank}] %(levelname)s %(name)s %(message)s")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=GROUP_SECONDS),
    )
    while True:
        try:
            module, name, arguments = pipe.recv()
        except EOFError:
            return
        value, error = None, None
        try:
            value = getattr(importlib.import_module(module), name)(rank, world_size, **arguments)
        except BaseException:
            error = traceback.format_exc()
        pipe.send((value, error, log.getvalue()))
        log.seek(0)
        log.truncate()
