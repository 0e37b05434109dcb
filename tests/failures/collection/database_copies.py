"""The whole content of a test database, taken and put back: what restoring an old backup does to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from shardkeep_service.database.database import Database
from shardkeep_service.database.tables import METADATA

Copy = Mapping[str, Sequence[dict[str, Any]]]
"""The rows of each table."""


def take_copy(database: Database) -> Copy:
    """Every row there is."""
    with database.read() as session:
        return {
            name: [dict(row._mapping) for row in session.connection().execute(table.select())]
            for name, table in METADATA.tables.items()
        }


def put_copy(database: Database, copy: Copy) -> None:
    """Makes the database what it was. Ids given since are not given again, as in a sequence that is not set back."""
    with database.engine.connect() as connection:
        _begin(connection, on_sqlite=database.is_sqlite)
        for table in reversed(METADATA.sorted_tables):
            connection.execute(table.delete())
        for table in METADATA.sorted_tables:
            rows = copy.get(table.name, ())
            if rows:
                connection.execute(table.insert(), list(rows))
        connection.commit()
        if database.is_sqlite:
            connection.exec_driver_sql("PRAGMA foreign_keys=ON")


def _begin(connection: Connection, *, on_sqlite: bool) -> None:
    """Rows come in any order: constraints between them are not looked at meanwhile."""
    if on_sqlite:
        connection.connection.execute("PRAGMA foreign_keys=OFF")  # before BEGIN
    else:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
