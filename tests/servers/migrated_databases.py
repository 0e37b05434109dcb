"""Databases on the test PostgreSQL that have the present schema: copies of one that was migrated once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cached_property

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
