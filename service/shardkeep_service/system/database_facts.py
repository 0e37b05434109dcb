"""What the database is: its kind, version, revision and size, and how many of its connections are in use."""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

from shardkeep.protocol.messages import DatabaseInfo
from shardkeep_service.database.migrate import current_revision, head_revision
from shardkeep_service.service_context import ServiceContext

_OF_SQLITE: Final = text("SELECT sqlite_version(), page_count * page_size FROM pragma_page_count(), pragma_page_size()")
_OF_POSTGRESQL: Final = text("SELECT current_setting('server_version'), pg_database_size(current_database())")


def database_info(context: ServiceContext) -> DatabaseInfo:
    """Asked anew each time: two small queries."""
    database = context.database
    in_use = database.connections_in_use
    with database.read() as session:
        version, size_bytes = session.execute(_OF_SQLITE if database.is_sqlite else _OF_POSTGRESQL).one()
    return DatabaseInfo(
        kind="sqlite" if database.is_sqlite else "postgresql",
        version=version,
        revision=current_revision(database),
        newest_revision=head_revision(),
        size_bytes=size_bytes,
        connections_in_use=in_use,
        connections_limit=context.settings.database_connections,
    )
