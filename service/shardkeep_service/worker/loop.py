"""Periodic tasks: one thread each, so that a slow one delays no other; a failing one is logged and comes again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from shardkeep_service.database.database import Database
from shardkeep_service.observability.metrics import Metrics
from shardkeep_service.worker.lease import WorkerLease, new_owner

log = structlog.get_logger("shardkeep.worker")

_RENEWALS_PER_LEASE: Final = 3


class TurnOver(Exception):
    """The worker ends, or another one holds the lease: leave off at this step; the next turn goes on."""


class Turn:
    """One turn of a task. The task checks it between steps, each of which is short and harmless to repeat."""

    def __init__(self, stopping: threading.Event | None = None, lease: WorkerLease | None = None) -> None:
        self._stopping = stopping or threading.Event()
        self._lease = lease
        self._renewed = time.monotonic()

    def check(self) -> None:
        """Renews the lease when a third of it has passed; TurnOver when the task has to leave off."""
        if self._stopping.is_set():
            raise TurnOver("the worker ends")
        if self._lease is None or time.monotonic() - self._renewed < self._lease.seconds / _RENEWALS_PER_LEASE:
            return
        if not self._lease.renew():
            raise TurnOver(f"another worker runs {self._lease.name} now")
        self._renewed = time.monotonic()

    def wait(self, seconds: float) -> None:
        """Pauses, so that a task keeps to its rate; TurnOver as in `check`."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._stopping.wait(min(left, self._lease.seconds / _RENEWALS_PER_LEASE if self._lease else left))
            self.check()


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """Something to run again and again. `run` blocks; it asks its turn between steps whether to go on."""

    name: str
    every_seconds: float
    run: Callable[[Turn], object]
    first_after_seconds: float = 0


@dataclass(frozen=True, slots=True)
class Leases:
    """How the workers of one database share their tasks."""

    database: Database
    seconds: float
    poll_seconds: float
    """How often a worker asks for a lease that another holds, or for a task that is not due."""


class WorkerLoop:
    """Runs periodic tasks until it is stopped. Without `leases` this process is the only one that does."""

    def __init__(
        self, tasks: Sequence[PeriodicTask], *, leases: Leases | None = None, metrics: Metrics | None = None
    ) -> None:
        self._stopping = threading.Event()
        self._leases = leases
        self._metrics = metrics or Metrics()
        self._owner: Final = new_owner()
        self._threads = [
            threading.Thread(target=self._repeat, args=(task,), name=f"worker-{task.name}", daemon=True)
            for task in tasks
        ]

    def start(self) -> None:
        """Begins; every task has its first turn when it says, and further ones after each pause."""
        for thread in self._threads:
            thread.start()

    def stop(self, *, timeout_seconds: float = 10) -> bool:
        """Lets running steps finish and starts no more; whether all ended within the time. The rest die with us."""
        self._stopping.set()
        until = time.monotonic() + timeout_seconds
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        left = [thread.name for thread in self._threads if thread.is_alive()]
        if left:
            log.warning("tasks_cut", tasks=left, after_seconds=timeout_seconds)
        return not left

    def _repeat(self, task: PeriodicTask) -> None:
        self._stopping.wait(task.first_after_seconds)
        while not self._stopping.is_set():
            self._stopping.wait(self._run_guarded(task))

    def _run_guarded(self, task: PeriodicTask) -> float:
        """Has one turn, if it is ours; gives the seconds until the next one is looked for."""
        try:
            if self._leases is None:
                self._run(task, Turn(self._stopping))
            else:
                self._run_leased(task, self._leases)
        except Exception:  # the edge of this thread: the other tasks and the next turn must not suffer
            log.exception("task_failed", task=task.name)
        return task.every_seconds if self._leases is None else min(task.every_seconds, self._leases.poll_seconds)

    def _run_leased(self, task: PeriodicTask, leases: Leases) -> None:
        lease = WorkerLease(leases.database, task.name, self._owner, leases.seconds)
        if not lease.take():
            return
        due_after_seconds = task.every_seconds  # also after a failure, which would else come again and again
        try:
            if not self._run(task, Turn(self._stopping, lease)):
                due_after_seconds = 0
        finally:
            lease.end(due_after_seconds=due_after_seconds)

    def _run(self, task: PeriodicTask, turn: Turn) -> bool:
        """Whether the task got to its end."""
        started, result = time.monotonic(), "failed"
        try:
            task.run(turn)
            result = "ok"
            self._metrics.task_success.labels(task.name).set_to_current_time()
        except TurnOver as over:
            result = "left_off"
            log.info("task_left_off", task=task.name, reason=str(over))
        finally:
            self._metrics.task_seconds.labels(task.name, result).observe(time.monotonic() - started)
        return result == "ok"
