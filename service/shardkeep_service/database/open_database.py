"""The database of the settings, for every process that uses it: the service, the worker and the commands."""

from __future__ import annotations

from sqlalchemy.exc import ArgumentError

from shardkeep_service.database.database import Database
from shardkeep_service.database.errors import DatabaseUnavailable
from shardkeep_service.database.options import DatabaseOptions
from shardkeep_service.settings import Settings

COMMAND_CONNECTIONS = 4
"""Enough for a command and its threads; each counts against the server's limit."""


def open_database(settings: Settings, *, application: str, connections: int | None = None) -> Database:
    """Connects to nothing yet. `application` (`serve`, `worker`, `doctor`) is shown by the database server.

    `connections` is that of the settings unless it is given. DatabaseUnavailable when the URL names a driver that is
    not there.
    """
    options = DatabaseOptions(
        connections=connections or settings.database_connections,
        lock_timeout_seconds=settings.database_lock_timeout_seconds,
        statement_timeout_seconds=settings.database_statement_timeout_seconds,
        idle_seconds=settings.database_idle_seconds,
        application_name=f"shardkeep {application}",
    )
    try:
        return Database(settings.resolved_database_url, options)
    except (ArgumentError, ModuleNotFoundError) as exc:
        raise DatabaseUnavailable(
            "SHARDKEEP_SERVICE_DATABASE_URL names a driver that is not installed; leave it out:"
            " postgresql://user:password@host:5432/name"
        ) from exc
