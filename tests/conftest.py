"""Fixtures for the service process. Everything else is built by the tests that need it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.servers.migrated_databases import MigratedDatabases
from tests.servers.postgres import URL_VARIABLE, Postgres
from tests.servers.seaweedfs import S3Server, SeaweedFS, server_of_environment
from tests.service_process import ServiceProcess

# What modules allocate stays: to look for garbage in it takes half a second each time.
gc.disable()

# No deadlines: on a busy machine a slow example says nothing about the code.
settings.register_profile("shardkeep", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shardkeep")


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service of this test alone, stopped at its end."""
    with ServiceProcess(tmp_path / "service") as process:
        yield process


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service that the tests of one module share; each uses projects of its own."""
    with ServiceProcess(tmp_path_factory.mktemp("shared") / "service") as process:
        yield process


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL for all tests of this process, or the server that the environment names; each takes a `new_database`
    of its own.
    """
    server = Postgres(os.environ.get(URL_VARIABLE))
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(scope="session")
def migrated_databases(postgres: Postgres) -> MigratedDatabases:
    """Databases with the present schema on the PostgreSQL of this process."""
    return MigratedDatabases(postgres)


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server that this process's tests share: a SeaweedFS, or the server that the environment names."""
    given = server_of_environment()
    if given is not None:
        yield given
        given.remove_buckets()
        return
    with SeaweedFS(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server
