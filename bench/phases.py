"""Phases of a benchmark: what happened between two moments, in the service and in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.connections import Traffic
from bench.processes import cpu_seconds, peak_bytes, reset_peak


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase. `requests` and bytes are the simulated ranks', `peak_bytes` is the service's during the phase."""

    name: str
    wall_seconds: float
    service_cpu_seconds: float
    client_cpu_seconds: float
    requests: int
    sent_bytes: int
    received_bytes: int
    peak_bytes: int


@dataclass(slots=True)
class PhaseMeter:
    """Collects phases of one service process."""

    service_pid: int
    traffic: Traffic
    phases: list[Phase] = field(default_factory=list)
    _begun: tuple[float, ...] = field(default=(), init=False)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measures the block."""
        self.begin()
        yield
        self.end(name)

    def begin(self) -> None:
        """A phase begins now."""
        reset_peak(self.service_pid)
        self._begun = self._look()

    def end(self, name: str) -> None:
        """The phase ends now, and the next may begin."""
        wall, service, client, requests, sent, received = (
            after - before for after, before in zip(self._look(), self._begun, strict=True)
        )
        peak = peak_bytes(self.service_pid)
        self.phases.append(Phase(name, wall, service, client, int(requests), int(sent), int(received), peak))
        self.begin()

    def _look(self) -> tuple[float, ...]:
        traffic = self.traffic
        return (
            time.monotonic(),
            cpu_seconds(self.service_pid),
            cpu_seconds(os.getpid()),
            traffic.requests,
            traffic.sent_bytes,
            traffic.received_bytes,
        )
