"""One measured operation of one rank."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch.distributed as dist

from bench.processes import cpu_seconds, peak_bytes, reset_peak, resident_bytes


@dataclass(frozen=True, slots=True)
class Reading:
    """What one operation took on one rank; `service_*` on rank 0 only. `blocked_seconds` is how long training waits."""

    operation: str
    repetition: int
    wall_seconds: float
    blocked_seconds: float
    cpu_seconds: float
    extra_bytes: int
    """The peak of memory over what was in use before."""
    service_cpu_seconds: float = 0.0
    service_peak_bytes: int = 0


class Stopwatch:
    """Takes readings; every rank begins at the same moment, with nothing left to write back to the disk."""

    def __init__(self, service_pid: int) -> None:
        self._service_pid = service_pid
        self.readings: list[Reading] = []

    def measure(
        self, operation: str, repetition: int, begin: Callable[[], object], end: Callable[[], object] | None = None
    ) -> None:
        """Runs `begin`, for which training waits, and `end`, which waits for the rest."""
        own, leads = os.getpid(), dist.get_rank() == 0
        if leads:
            os.sync()
            reset_peak(self._service_pid)
        dist.barrier()
        reset_peak(own)
        memory_before, service_before = resident_bytes(own), cpu_seconds(self._service_pid)
        cpu_before, started = time.process_time(), time.monotonic()
        begin()
        blocked = time.monotonic() - started
        if end is not None:
            end()
        wall = time.monotonic() - started
        cpu = time.process_time() - cpu_before
        extra = peak_bytes(own) - memory_before
        dist.barrier()
        service_cpu = cpu_seconds(self._service_pid) - service_before if leads else 0.0
        service_peak = peak_bytes(self._service_pid) if leads else 0
        reading = Reading(operation, repetition, wall, blocked, cpu, extra, service_cpu, service_peak)
        self.readings.append(reading)
