"""What the database is: its kind, version, revision and size, and how many of its connections are in use."""

from __future__ import annotations

import contextlib

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import DatabaseInfo
from shardkeep_service.database.migrate import current_revision, head_revision
from shardkeep_service.service_context import ServiceContext


def database_info(context: ServiceContext) -> DatabaseInfo:
    """Asked anew each time: a handful of small queries."""
    database = context.database
    in_use = database.connections_in_use
    with database.read() as session:
        version = _version(session, is_sqlite=database.is_sqlite)
    return DatabaseInfo(
        kind="sqlite" if database.is_sqlite else "postgresql",
        version=version,
        revision=current_revision(database),
        newest_revision=head_revision(),
        size_bytes=_size_bytes(context),
        connections_in_use=in_use,
        connections_limit=context.settings.database_connections,
    )


def _version(session: Session, *, is_sqlite: bool) -> str:
    query = "SELECT sqlite_version()" if is_sqlite else "SHOW server_version"
    return str(session.execute(text(query)).scalar_one())


def _size_bytes(context: ServiceContext) -> int | None:
    """None where the database's user may not ask for it."""
    if context.database.is_sqlite:
        query = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    else:
        query = "SELECT pg_database_size(current_database())"
    with contextlib.suppress(DBAPIError), context.database.read() as session:
        return int(session.execute(text(query)).scalar_one())
    return None
