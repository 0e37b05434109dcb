"""Migrations: brings a database to the schema of this version, or says whether this version may run on what is there.

The history lives in `migrations/` of the repository and is shipped inside the package. An upgrade is one transaction
under one lock: however many processes try, one migrates and the others find it done.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Final

import structlog
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from shardkeep_service.database.database import Database
from shardkeep_service.database.errors import DatabaseBusy
from shardkeep_service.database.schema_support import supported_since, write_support
from shardkeep_service.database.tables import METADATA

log = structlog.get_logger("shardkeep.migrate")

_PACKAGE: Final = Path(__file__).resolve().parents[1]
CONNECTION_ATTRIBUTE: Final = "connection"
"""The attribute of Alembic's Config by which `migrations/env.py` is given its connection."""
_LOCK_KEY: Final = 0x5348_4152_444B_4550
"""PostgreSQL's advisory lock of migrations: `SHARDKEP` in ASCII."""
_TURN_TIMEOUT: Final = "10min"
"""How long a migration waits for another process's."""
_TABLE_LOCK_TIMEOUT: Final = "3s"
"""How long a change of a table waits for transactions on it: everybody else queues up behind it meanwhile."""
_TRIES: Final = 20
_PAUSE_SECONDS: Final = 1.0


class MigrationRefused(Exception):
    """The database is not one this version can run on, or bring to its schema."""


def migrations_dir() -> Path:
    """`migrations/` inside the installed package, else of the repository."""
    for candidate in (_PACKAGE / "migrations", _PACKAGE.parents[1] / "migrations"):
        if (candidate / "env.py").is_file():
            return candidate
    raise MigrationRefused(f"no migrations beside {_PACKAGE}: the installation is incomplete")


def head_revision() -> str:
    """The revision this version of the service works with."""
    head = _history().get_current_head()
    assert head is not None
    return head


def current_revision(database: Database) -> str | None:
    """The revision the database is at, or None when it is empty."""
    with database.read() as session:
        return _revision_of(session.connection())


def prepare_schema(database: Database, *, migrate: bool) -> str:
    """The revision of a database that this version may run on; brought to this version's first if `migrate` says so.

    MigrationRefused names what to do otherwise.
    """
    if migrate and current_revision(database) in {None, *_known()}:
        return upgrade(database)
    return check_schema(database)


def check_schema(database: Database) -> str:
    """The database's revision; MigrationRefused unless it is this version's or one that this version may run on."""
    head = head_revision()
    with database.read() as session:
        connection = session.connection()
        current = _revision_of(connection)
        if current == head:
            return head
        if current is None:
            raise MigrationRefused("the database is empty; run `shardkeep-service migrate` once, then start again")
        known = _known()
        if current in known:
            raise MigrationRefused(
                f"the database is at revision {current} and this version needs {head}; run `shardkeep-service migrate`"
                " once, then start again. Replicas of the version before may go on running meanwhile"
            )
        oldest = supported_since(connection, current)
    if oldest not in known:
        raise _too_new(current, oldest, head)
    return current


def upgrade(database: Database) -> str:
    """Brings the database to the head revision and gives it; MigrationRefused when it is newer than this version.

    DatabaseBusy when other transactions kept the tables from being changed, again and again.
    """
    head = head_revision()
    if current_revision(database) == head:
        return head
    for tries_left in reversed(range(_TRIES)):
        try:
            with database.schema_connection() as connection:
                _upgrade(connection, head, on_sqlite=database.is_sqlite)
        except DatabaseBusy as busy:
            if not tries_left:
                raise
            log.warning("migration_waits", reason=str(busy), tries_left=tries_left)
            time.sleep(_PAUSE_SECONDS)
        else:
            break
    return head


def drift(database: Database) -> list[object]:
    """How the database's schema differs from the models; empty when a migration exists for every change."""
    with database.read() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})
        return list(compare_metadata(context, METADATA))


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for commands on this connection, in whose transaction they run."""
    config = Config()
    config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
    config.attributes[CONNECTION_ATTRIBUTE] = connection
    return config


def _upgrade(connection: Connection, head: str, *, on_sqlite: bool) -> None:
    if not on_sqlite:
        _take_turn(connection)
    current = _revision_of(connection)
    if current == head:
        return
    if current is not None and current not in _known():
        raise _too_new(current, supported_since(connection, current), head)
    command.upgrade(alembic_config(connection), "head")
    write_support(connection, list(_history().walk_revisions()))
    if on_sqlite:
        _check_references(connection)


def _take_turn(connection: Connection) -> None:
    """Waits for a migration of another process. The time limits hold for this transaction only."""
    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_TURN_TIMEOUT}'")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})")
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_TABLE_LOCK_TIMEOUT}'")


def _check_references(connection: Connection) -> None:
    """SQLite rebuilds tables to alter them, with foreign keys switched off: they are checked as a whole instead."""
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
    if broken:
        tables = ", ".join(sorted({str(row[0]) for row in broken}))
        raise MigrationRefused(f"rows of {tables} refer to rows that do not exist; the database was left as it was")


def _revision_of(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _history() -> ScriptDirectory:
    return _loaded(str(migrations_dir()))


@functools.cache
def _loaded(directory: str) -> ScriptDirectory:
    """Loading the scripts takes longer than any question about them."""
    return ScriptDirectory(directory)


def _known() -> set[str]:
    return {script.revision for script in _history().walk_revisions()}


def _too_new(current: str, oldest: str | None, head: str) -> MigrationRefused:
    needs = f"needs code of revision {oldest} or later" if oldest else "is of a newer version of the service"
    return MigrationRefused(
        f"the database is at revision {current}, which {needs}; this version's is {head}: start the newer version, or"
        " restore the backup made before the migration"
    )
