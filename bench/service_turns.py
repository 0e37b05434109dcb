"""The client of `bench.service`: saves, loads and bare transfers of the same bytes, in turns, each measured.

Run by `bench.service` in a process of its own, so that its CPU is that of the client alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import shardkeep as sk
from bench.presigned_transfers import PresignedTransfers
from bench.processes import cpu_seconds, peak_bytes, reset_peak
from shardkeep_service.blob_store.s3.opening import open_s3
from shardkeep_service.blob_store.s3.settings import S3Settings

CHUNK_BYTES = 32 << 20
"""The size of a chunk, of a part in bare transfers and of a plain file."""
Kind = Literal["save", "load"]


@dataclass(frozen=True, slots=True)
class ServiceUnderTest:
    """One service: the way its bytes go, and what to measure of it."""

    way: str
    url: str
    token: str
    pid: int
    on_s3: bool
    idle_bytes: int
    """Its memory before it has done anything."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one client process does."""

    services: list[ServiceUnderTest]
    store_pid: int
    folder: str
    total_bytes: int
    uploads: int
    repetitions: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One measured operation. `service_*` are those of its service, 0 where it has none."""

    operation: str
    kind: Kind
    on_s3: bool
    repetition: int
    wall_seconds: float
    client_cpu_seconds: float
    service_cpu_seconds: float = 0.0
    store_cpu_seconds: float = 0.0
    service_peak_bytes: int = 0
    service_extra_bytes: int = 0
    """The peak over what the service used before it had done anything."""


class Turns:
    """All operations of one plan, on one state whose bytes are new at each save."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        count = plan.total_bytes // CHUNK_BYTES
        generator = np.random.default_rng(0)
        self._state: dict[str, NDArray[np.float32]] = {
            f"part.{number:03}": generator.standard_normal(CHUNK_BYTES // 4, dtype=np.float32)
            for number in range(count)
        }
        self._parts = [array.data.cast("B") for array in self._state.values()]
        self._clients = {
            service.way: sk.connect(
                service.url,
                service.token,
                connections=plan.uploads,
                upload_workers=plan.uploads,
                codec="raw",
            )
            for service in plan.services
        }
        self._runs = {way: client.run("bench/service") for way, client in self._clients.items()}
        presigner = open_s3(S3Settings(), storage_threads=1).presigner
        self._bare = PresignedTransfers(presigner, self._parts, threads=plan.uploads)
        self._files = ThreadPoolExecutor(plan.uploads, thread_name_prefix="files")
        self.turns: list[Turn] = []

    def run(self) -> None:
        """Every operation once for each repetition, one after another; the first repetition warms up."""
        for repetition in range(self._plan.repetitions + 1):
            self._renew()
            self._measure("bare presigned PUTs", "save", repetition, None, self._bare.prepare_puts(), on_s3=True)
            self._measure("bare presigned GETs", "load", repetition, None, self._bare.prepare_gets(), on_s3=True)
            self._renew()
            self._measure("plain files, synced", "save", repetition, None, self._write_files, on_s3=False)
            for service in self._plan.services:
                self._renew()
                self._save_and_load(service, repetition)

    def close(self) -> None:
        """Drops the connections."""
        for client in self._clients.values():
            client.close()

    def _save_and_load(self, service: ServiceUnderTest, repetition: int) -> None:
        run = self._runs[service.way]

        def save() -> None:
            run.save(repetition + 1, self._state).wait()

        self._measure(service.way, "save", repetition, service, save, on_s3=service.on_s3)
        latest = run.latest()
        if latest is None or latest.step != repetition + 1:
            raise SystemExit(f"{service.way}: the save is not the latest checkpoint")
        before = self._state["part.000"][:1000].copy()
        self._state["part.000"][:1000] = 0
        self._measure(
            service.way, "load", repetition, service, lambda: latest.load_into(self._state), on_s3=service.on_s3
        )
        if not np.array_equal(before, self._state["part.000"][:1000]):
            raise SystemExit(f"{service.way}: the load brought other bytes")

    def _write_files(self) -> None:
        list(self._files.map(self._write_file, range(len(self._parts))))

    def _write_file(self, number: int) -> None:
        with (Path(self._plan.folder) / f"plain-{number}").open("wb") as file:
            file.write(self._parts[number])
            file.flush()
            os.fsync(file.fileno())

    def _renew(self) -> None:
        """Changes every element, so that no chunk is one that is stored already."""
        for array in self._state.values():
            array.view(np.uint32)[...] += 1

    def _measure(
        self,
        operation: str,
        kind: Kind,
        repetition: int,
        service: ServiceUnderTest | None,
        action: Callable[[], object],
        *,
        on_s3: bool,
    ) -> None:
        os.sync()
        pid = service.pid if service is not None else None
        if pid is not None:
            reset_peak(pid)
        service_before = cpu_seconds(pid) if pid is not None else 0.0
        store_before = cpu_seconds(self._plan.store_pid)
        cpu_before, started = time.process_time(), time.monotonic()
        action()
        wall, cpu = time.monotonic() - started, time.process_time() - cpu_before
        peak = peak_bytes(pid) if pid is not None else 0
        self.turns.append(
            Turn(
                operation,
                kind,
                on_s3,
                repetition,
                wall,
                cpu,
                cpu_seconds(pid) - service_before if pid is not None else 0.0,
                cpu_seconds(self._plan.store_pid) - store_before if on_s3 else 0.0,
                peak,
                peak - service.idle_bytes if service is not None else 0,
            )
        )


def plan_of(document: dict[str, Any]) -> Plan:
    """A plan from its JSON."""
    services = [ServiceUnderTest(**service) for service in document.pop("services")]
    return Plan(services=services, **document)


def main(path: Path) -> None:
    """Reads the plan from a file and writes the turns beside it."""
    turns = Turns(plan_of(json.loads(path.read_text())))
    try:
        turns.run()
    finally:
        turns.close()
    path.with_suffix(".turns.json").write_text(json.dumps([asdict(turn) for turn in turns.turns]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
