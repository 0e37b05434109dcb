"""An empty database of either kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkeep_service.database.database import Database
from tests.servers.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database that was never migrated."""
    if request.param == "sqlite":
        database = Database(f"sqlite:///{tmp_path / 'x.db'}")
        yield database
        database.close()
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    url = postgres.new_database()
    database = Database(url)
    yield database
    database.close()
    postgres.drop_database(url)
