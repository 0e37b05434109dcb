"""Transactions: one `Database` gives read and write transactions and the database's own time.

On SQLite a write transaction begins with BEGIN IMMEDIATE, so reading first and writing later can never fail with a
lock upgrade. WAL is used only from SQLite 3.51.3 on: older versions can corrupt a database in WAL mode when a
checkpoint races a commit (sqlite.org/wal.html, "WAL-reset"). Elsewhere the rollback journal with synchronous=FULL is
used, and then one lock serialises all transactions of this process, which costs less than SQLite's polling for busy
locks.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from shardkeep_service.database import postgresql
from shardkeep_service.database.options import DatabaseOptions
from shardkeep_service.database.session_time import CLOCK
from shardkeep_service.database.translation import translated_errors

SAFE_WAL_VERSION: Final = (3, 51, 3)
_WRITE: Final = "shardkeep_write"
_SCHEMA: Final = "shardkeep_schema"
_SNAPSHOT: Final = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
"""Reads on PostgreSQL: what several statements of one read find belongs together, as on SQLite. It locks nothing."""


class Database:
    """An engine and its transactions. Thread-safe; one per process."""

    def __init__(self, url: str, options: DatabaseOptions | None = None) -> None:
        self._url = postgresql.with_driver(make_url(url))
        self.is_sqlite: Final = self._url.get_backend_name() == "sqlite"
        self.engine: Final[Engine] = create_engine(self._url, **self._engine_options(options or DatabaseOptions()))
        self._write_engine = self.engine.execution_options(**{_WRITE: True})
        self._read_engine = self.engine if self.is_sqlite else self.engine.execution_options(**_SNAPSHOT)
        self._wal = self.is_sqlite and sqlite3.sqlite_version_info >= SAFE_WAL_VERSION
        self._read_lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self._write_lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if self.is_sqlite:
            lock = threading.Lock()
            self._write_lock = lock
            self._read_lock = contextlib.nullcontext() if self._wal else lock
            event.listen(self.engine, "connect", self._set_pragmas)
            event.listen(self.engine, "begin", _begin_sqlite)

    def _engine_options(self, options: DatabaseOptions) -> dict[str, Any]:
        if not self.is_sqlite:
            return postgresql.engine_options(self._url, options)
        return {
            "poolclass": QueuePool,
            "pool_size": options.connections,
            "max_overflow": 0,
            "pool_timeout": options.wait_seconds,
            "connect_args": {"check_same_thread": False, "timeout": 30.0},
        }

    def _set_pragmas(self, connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # BEGIN is ours, see _begin_sqlite
        journal = "WAL" if self._wal else "PERSIST"
        for pragma in (f"journal_mode={journal}", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=30000"):
            connection.execute(f"PRAGMA {pragma}")

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that writes nothing and sees one moment of the database; rolled back at the end."""
        with self._read_lock, translated_errors(), self._session(self._read_engine) as session:
            yield session

    @contextlib.contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that is committed when the block ends and rolled back when it raises.

        On PostgreSQL they run side by side, each statement seeing what was committed before it (READ COMMITTED): what
        a write depends on must be locked, or be a condition of its statement. Lock the run before its checkpoints.

        Never call the blob store inside: no transaction is held across object-store I/O.
        """
        with self._write_lock, translated_errors(), self._session(self._write_engine) as session:
            yield session
            session.commit()

    def _session(self, engine: Engine) -> Session:
        return Session(engine, expire_on_commit=False, info={CLOCK: self.now})

    @contextlib.contextmanager
    def schema_connection(self) -> Iterator[Connection]:
        """Like `write`, for migrations: a bare connection of its own whose schema changes are one transaction.

        SQLite alters a table by making it anew and dropping the old one, which must not count as deleting its rows: so
        foreign keys are not enforced on it.
        """
        engine = self._write_engine.execution_options(**{_SCHEMA: True})
        with self._write_lock, translated_errors(), engine.connect() as connection:
            connection.detach()
            with connection.begin():
                yield connection

    @property
    def journal(self) -> str:
        """How commits are made durable, for the log."""
        if not self.is_sqlite:
            return "server"
        return "WAL" if self._wal else "PERSIST"

    @property
    def connections_in_use(self) -> int:
        """Connections lent out at this moment."""
        pool = self.engine.pool
        return pool.checkedout() if isinstance(pool, QueuePool) else 0

    def now(self, session: Session) -> int:
        """Database time in microseconds: one clock for all replicas. SQLite has one process, so its clock is ours."""
        if self.is_sqlite:
            return time.time_ns() // 1000
        epoch_micros = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        return int(session.execute(epoch_micros).scalar_one())

    def close(self) -> None:
        """Closes every pooled connection."""
        self.engine.dispose()


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    if options.get(_SCHEMA, False):
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")  # it has no effect inside a transaction
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(_WRITE, False) else "BEGIN")
