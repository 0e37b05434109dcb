"""Two replicas in this process: two applications over one PostgreSQL database and one directory of objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.migrated_databases import MigratedDatabases
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training


@pytest.fixture
def replicas(tmp_path: Path, migrated_databases: MigratedDatabases) -> Iterator[tuple[Training, Training]]:
    """The same run, once through each replica."""
    with (
        migrated_databases.database() as url,
        LocalService(tmp_path / "shared", database_url=url) as first,
        LocalService(tmp_path / "shared", database_url=url) as second,
    ):
        yield Training(first), Training(second)
