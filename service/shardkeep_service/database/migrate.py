"""Migrations: brings a database to the schema of this version, or says why it cannot.

The history lives in `migrations/` of the repository and is shipped inside the package. An upgrade is one transaction.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from shardkeep_service.database.database import Database
from shardkeep_service.database.tables import METADATA

_PACKAGE: Final = Path(__file__).resolve().parents[1]
CONNECTION_ATTRIBUTE: Final = "connection"
"""The attribute of Alembic's Config by which `migrations/env.py` is given its connection."""


class MigrationRefused(Exception):
    """The database is not one this version can bring to its schema."""


def migrations_dir() -> Path:
    """`migrations/` inside the installed package, else of the repository."""
    for candidate in (_PACKAGE / "migrations", _PACKAGE.parents[1] / "migrations"):
        if (candidate / "env.py").is_file():
            return candidate
    raise MigrationRefused(f"no migrations beside {_PACKAGE}: the installation is incomplete")


def head_revision() -> str:
    """The revision this version of the service works with."""
    head = ScriptDirectory(str(migrations_dir())).get_current_head()
    assert head is not None
    return head


def current_revision(database: Database) -> str | None:
    """The revision the database is at, or None when it is empty."""
    with database.read() as session:
        return _revision_of(session.connection())


def upgrade(database: Database) -> str:
    """Brings the database to the head revision and gives it; MigrationRefused when it is newer than this version."""
    head = head_revision()
    with database.write_connection() as connection:
        current = _revision_of(connection)
        if current == head:
            return head
        _check_known(current)
        config = Config()
        config.set_main_option("script_location", str(migrations_dir()))
        config.attributes[CONNECTION_ATTRIBUTE] = connection
        command.upgrade(config, "head")
    return head


def drift(database: Database) -> list[object]:
    """How the database's schema differs from the models; empty when a migration exists for every change."""
    with database.read() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})
        return list(compare_metadata(context, METADATA))


def _revision_of(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _check_known(revision: str | None) -> None:
    known = {script.revision for script in ScriptDirectory(str(migrations_dir())).walk_revisions()}
    if revision is not None and revision not in known:
        raise MigrationRefused(
            f"the database is at revision {revision}, which this version does not know: it was migrated by a newer"
            " version of the service; run that version, or restore the backup made before the migration"
        )
