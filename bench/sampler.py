"""A sampling profiler for one process: CPU and thread seconds by the function of ours that was at work.

Every few milliseconds each thread's own CPU clock is read, and what it gained is put down to the innermost frame of
this repository on the thread's stack (else to the library that was running). Time in C code counts for its caller, so
hashing shows under `chunk_ref` and `fsync` under the function that calls it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

_INTERVAL_SECONDS = 0.002
_SWITCH_SECONDS = 0.0005
"""How soon a computing thread lets the sampler in; else all its work would seem to happen where it next blocks."""
_SHORT_TASKS = "(tasks shorter than a sample)"
_OURS = ("/client/shardkeep/", "/service/shardkeep_service/", "/bench/")
_WAITING = ("/threading.py", "/queue.py", "/selectors.py", "/concurrent/futures/thread.py", "/anyio/_backends/")
_CPU_CLOCK = 6
"""The kernel's flags of a thread's own clock (CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED) in a dynamic clock id."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One function: CPU it used, and how long threads were in it without waiting for work."""

    where: str
    cpu_seconds: float
    thread_seconds: float


class Sampler:
    """Samples all threads but its own while its `with` block runs; `costs` come by CPU, most first."""

    def __init__(self) -> None:
        self._cpu: defaultdict[str, float] = defaultdict(float)
        self._wall: defaultdict[str, float] = defaultdict(float)
        self._last: dict[int, float] = {}
        self._ended = threading.Event()
        self._switch_seconds = sys.getswitchinterval()
        self._thread = threading.Thread(target=self._run, name="bench-sampler", daemon=True)

    def costs(self) -> list[Cost]:
        """What was seen so far."""
        names = self._cpu.keys() | self._wall.keys()
        costs = [Cost(name, self._cpu[name], self._wall[name]) for name in names]
        return sorted(costs, key=lambda cost: -cost.cpu_seconds)

    def __enter__(self) -> Self:
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._sample(0.0)
        self._cpu.clear()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        sys.setswitchinterval(self._switch_seconds)

    def _run(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(_INTERVAL_SECONDS):
            now = time.monotonic()
            self._sample(now - before)
            before = now

    def _sample(self, elapsed_seconds: float) -> None:
        frames = sys._current_frames()  # noqa: SLF001 - the only way to see other threads' stacks
        for thread in threading.enumerate():
            frame = frames.get(thread.ident or 0)
            if frame is None or thread is self._thread or thread.native_id is None:
                continue
            waits = _is_waiting(frame)
            where = _SHORT_TASKS if waits else _where(frame)
            self._cpu[where] += self._gained(thread.native_id)
            if not waits:
                self._wall[where] += elapsed_seconds

    def _gained(self, native_id: int) -> float:
        try:
            used = time.clock_gettime((~native_id << 3) | _CPU_CLOCK)
        except OSError:  # it ended in between
            return 0.0
        before = self._last.get(native_id, 0.0)
        self._last[native_id] = used
        return max(used - before, 0.0)


def _is_waiting(frame: FrameType) -> bool:
    return any(part in frame.f_code.co_filename for part in _WAITING)


def _where(innermost: FrameType) -> str:
    frame: FrameType | None = innermost
    while frame is not None:
        name = frame.f_code.co_filename
        for root in _OURS:
            _, found, inner = name.rpartition(root)
            if found:
                module = inner.removesuffix(".py")
                return f"{root.strip('/').split('/')[-1]}/{module}.{frame.f_code.co_name}"
        frame = frame.f_back
    return _library_of(innermost.f_code.co_filename)


def _library_of(file_name: str) -> str:
    _, found, inner = file_name.rpartition("/site-packages/")
    return inner.split("/")[0] if found else f"python {Path(file_name).stem}"
