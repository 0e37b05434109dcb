"""A service in this process for each test that asks for one, over SQLite unless the test is of BOTH_DATABASES."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkeep_service.database.database import Database
from tests.servers.migrated_databases import MigratedDatabases, put_migrated_sqlite
from tests.unit.service.databases import SQLITE
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training


@pytest.fixture
def database_kind(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", SQLITE))


@pytest.fixture
def database_url(database_kind: str, request: pytest.FixtureRequest) -> Iterator[str | None]:
    """A PostgreSQL database with the present schema, or None for SQLite in the data directory."""
    if database_kind == SQLITE:
        yield None
        return
    databases: MigratedDatabases = request.getfixturevalue("migrated_databases")
    with databases.database() as url:
        yield url


@pytest.fixture
def local(tmp_path: Path, database_url: str | None) -> Iterator[LocalService]:
    with LocalService(tmp_path / "service", database_url=database_url) as service:
        yield service


@pytest.fixture
def database(tmp_path: Path, database_url: str | None) -> Iterator[Database]:
    """A database with the present schema, without a service."""
    if database_url is None:
        put_migrated_sqlite(tmp_path / "x.db")
    database = Database(database_url or f"sqlite:///{tmp_path / 'x.db'}")
    yield database
    database.close()


@pytest.fixture
def training(local: LocalService) -> Training:
    return Training(local)
