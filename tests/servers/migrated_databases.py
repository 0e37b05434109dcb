"""Databases that have the present schema, on the test PostgreSQL or as SQLite files: copies of one migrated once."""

from __future__ import annotations

import atexit
import contextlib
import functools
import shutil
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from shardkeep_service.database.database import Database
from shardkeep_service.database.migrate import upgrade
from tests.servers.postgres import Postgres


class MigratedDatabases:
    """Gives each test a database of its own; dropped at the test's end, since each takes 8 MB."""

    def __init__(self, server: Postgres) -> None:
        self.server = server

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new one."""
        url = self.server.new_database(template=self._template)
        try:
            yield url
        finally:
            self.server.drop_database(url)

    @cached_property
    def _template(self) -> str:
        url = self.server.new_database()
        database = Database(url)
        upgrade(database)
        database.close()
        return url


def put_migrated_sqlite(path: Path) -> None:
    """A SQLite database with the present schema where there is none yet."""
    if not path.exists():
        shutil.copyfile(_sqlite_template(), path)


@functools.cache
def _sqlite_template() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="shardkeep-schema-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    database = Database(f"sqlite:///{directory / 'template.db'}")
    upgrade(database)
    database.close()
    return directory / "template.db"
