"""`shardkeep-service worker` and `gc` as processes, beside a real PostgreSQL: shared, killed, ended in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from shardkeep_service.database.database import Database
from shardkeep_service.worker.models import Lease
from tests.servers.migrated_databases import MigratedDatabases
from tests.service_process import ServiceProcess
from tests.waiting import wait_until
from tests.warm_process import WarmProcess, run_program


class Workers:
    """Worker processes on one database, each with its log."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self._running: list[WarmProcess] = []

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "SHARDKEEP_SERVICE_DATABASE_URL": self.url,
            "SHARDKEEP_SERVICE_HOUSEKEEPING_SECONDS": "0.1",
            "SHARDKEEP_SERVICE_WORKER_LEASE_SECONDS": "2",
        }

    def start(self) -> WarmProcess:
        words = ("worker", "--data", str(self.directory / "data"))
        log = self.directory / "worker.log"
        process = WarmProcess("shardkeep-service", words, env=self.environment(), stdout=log, stderr=log)
        self._running.append(process)
        return process

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        data = str(self.directory / "data")
        return run_program("shardkeep-service", *arguments, "--data", data, env=self.environment())

    @property
    def log(self) -> str:
        return (self.directory / "worker.log").read_text()

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait(30)


@pytest.fixture
def workers(tmp_path: Path, migrated_databases: MigratedDatabases) -> Iterator[Workers]:
    with migrated_databases.database() as url:
        found = Workers(tmp_path, url)
        yield found
        found.close()


def owners(database: Database) -> set[str]:
    with database.read() as session:
        return {owner for owner in session.scalars(select(Lease.owner)) if owner is not None}


def ran(database: Database, name: str) -> int:
    with database.read() as session:
        found = session.get(Lease, name)
        return 0 if found is None else found.due_at


def test_a_worker_ends_in_order_and_another_goes_on_after_a_kill(workers: Workers) -> None:
    database = Database(workers.url)
    first = workers.start()
    wait_until(lambda: ran(database, "expiry"))
    second = workers.start()
    wait_until(lambda: workers.log.count("worker_starting") == 2)

    first.send_signal(signal.SIGKILL)
    first.wait(30)
    for name in ("expiry", "commit-records"):
        seen = ran(database, name)
        wait_until(lambda name=name, seen=seen: ran(database, name) > seen)  # type: ignore[misc]

    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == 0
    assert "worker_stopped" in workers.log
    database.close()


def test_gc_beside_a_database_says_what_it_did_and_what_it_would_do(workers: Workers) -> None:
    dry = workers.command("gc", "--dry-run", "--json")
    assert dry.returncode == 0, dry.stderr
    assert json.loads(dry.stdout)["condemned_chunks"] == {"count": 0, "size_bytes": 0}
    done = workers.command("gc", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["removed_chunks"] == 0
    shown = workers.command("gc")
    assert "removed chunks: 0" in shown.stdout


def test_gc_waits_for_no_worker_that_is_collecting(workers: Workers) -> None:
    database = Database(workers.url)
    with database.write() as session:
        session.add(Lease(name="collection", owner="somebody", until=database.now(session) + 10**9, due_at=0))

    refused = workers.command("gc")

    assert refused.returncode == 1
    assert "a worker is collecting at this moment" in refused.stderr
    database.close()


def test_a_worker_without_postgresql_is_told_that_the_service_does_its_work(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "SHARDKEEP_SERVICE_DATABASE_URL"}
    process = run_program("shardkeep-service", "worker", "--data", str(tmp_path), env=env)

    assert process.returncode == 1
    assert "SHARDKEEP_SERVICE_DATABASE_URL" in process.stderr


def test_gc_beside_an_embedded_service_is_refused_while_it_runs(tmp_path: Path) -> None:
    words = ("gc", "--json", "--data", str(tmp_path / "service"))
    with ServiceProcess(tmp_path / "service"):
        refused = run_program("shardkeep-service", *words, env=os.environ)
    alone = run_program("shardkeep-service", *words, env=os.environ)

    assert refused.returncode == 1
    assert alone.returncode == 0, alone.stderr
