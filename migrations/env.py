"""Alembic's environment: runs migrations on the connection that `database/migrate.py` hands over.

Called by the alembic command line it makes its own, to the database of the settings, so that
`alembic revision --autogenerate` works on a development database.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from shardkeep_service.database.migrate import CONNECTION_ATTRIBUTE
from shardkeep_service.database.open_database import open_database
from shardkeep_service.database.tables import METADATA
from shardkeep_service.settings import Settings


def run(connection: Connection) -> None:
    """Runs what the command asks for; the transaction is the caller's."""
    context.configure(connection=connection, target_metadata=METADATA, render_as_batch=True, compare_type=True)
    context.run_migrations()


given: Connection | None = context.config.attributes.get(CONNECTION_ATTRIBUTE)
if given is not None:
    run(given)
else:
    with open_database(Settings(), application="alembic", connections=2).schema_connection() as own:
        run(own)
