"""Threads that run tasks until the work is over or one of them failed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

Task = Callable[[], None]


class WorkQueue:
    """Tasks for a fixed number of threads, all started at once: near the interpreter's exit none can be."""

    def __init__(self, name: str, workers: int, *, on_error: Callable[[Exception], None]) -> None:
        self.workers = workers
        self._on_error = on_error
        self._changed = threading.Condition()
        self._tasks: deque[Task] = deque()
        self._closed = False
        # Not daemons: the interpreter waits for them at exit, so that the last save is not lost.
        self._threads = [
            threading.Thread(target=self._work, name=f"shardkeep-{name}-{number}", daemon=False)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, task: Task, *, first: bool = False) -> None:
        """Run a task, before those waiting if `first`; after `close` it is dropped."""
        with self._changed:
            if self._closed:
                return
            if first:
                self._tasks.appendleft(task)
            else:
                self._tasks.append(task)
            self._changed.notify()

    def close(self) -> None:
        """Drop waiting tasks; threads end after the task they run."""
        with self._changed:
            self._closed = True
            self._tasks.clear()
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until the threads have ended."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (task := self._take()) is not None:
            try:
                task()
            except Exception as error:  # noqa: BLE001 - a thread's edge: it ends the save and reaches its handle
                self._on_error(error)
            finally:
                del task

    def _take(self) -> Task | None:
        with self._changed:
            while not self._tasks and not self._closed:
                self._changed.wait()
            return None if self._closed else self._tasks.popleft()


class Outstanding:
    """How much work is begun and not ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def begin(self, count: int = 1) -> None:
        """Count work that has begun."""
        with self._changed:
            self._count += count

    def end(self) -> None:
        """Count one piece of work that has ended."""
        with self._changed:
            self._count -= 1
            if not self._count:
                self._changed.notify_all()

    @property
    def is_none(self) -> bool:
        """Whether all has ended."""
        with self._changed:
            return self._count == 0

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until none is left; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout_seconds)
