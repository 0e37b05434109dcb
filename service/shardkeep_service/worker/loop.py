"""Periodic tasks: one thread each, so that a slow one delays no other; a failing one is logged and comes again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

log = structlog.get_logger("shardkeep.worker")


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """Something to run again and again. `run` blocks, and returns soon after the next thing it waits for."""

    name: str
    every_seconds: float
    run: Callable[[], None]


class WorkerLoop:
    """Runs periodic tasks until it is stopped."""

    def __init__(self, tasks: Sequence[PeriodicTask]) -> None:
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(task,), name=f"worker-{task.name}", daemon=True)
            for task in tasks
        ]

    def start(self) -> None:
        """Begins; every task runs at once and then after each pause."""
        for thread in self._threads:
            thread.start()

    def stop(self, *, timeout_seconds: float = 10) -> None:
        """Lets running tasks finish and starts no more."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout_seconds)

    def _repeat(self, task: PeriodicTask) -> None:
        while not self._stop.is_set():
            try:
                task.run()
            except Exception:  # the edge of this thread: the other tasks and the next turn must not suffer
                log.exception("task_failed", task=task.name)
            self._stop.wait(task.every_seconds)
