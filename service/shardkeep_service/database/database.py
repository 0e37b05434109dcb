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
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from shardkeep_service.database.errors import DatabaseBusy, DatabaseFailed, DatabaseFull, DatabaseUnavailable

SAFE_WAL_VERSION: Final = (3, 51, 3)
_WRITE: Final = "shardkeep_write"


class Database:
    """An engine and its transactions. Thread-safe; one per process."""

    def __init__(self, url: str, *, pool_size: int = 16) -> None:
        self._url = make_url(url)
        self.is_sqlite: Final = self._url.get_backend_name() == "sqlite"
        self.engine: Final[Engine] = create_engine(self._url, **self._engine_options(pool_size))
        self._write_engine = self.engine.execution_options(**{_WRITE: True})
        self._wal = self.is_sqlite and sqlite3.sqlite_version_info >= SAFE_WAL_VERSION
        self._read_lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self._write_lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if self.is_sqlite:
            lock = threading.Lock()
            self._write_lock = lock
            self._read_lock = contextlib.nullcontext() if self._wal else lock
            event.listen(self.engine, "connect", self._set_pragmas)
            event.listen(self.engine, "begin", _begin_sqlite)

    def _engine_options(self, pool_size: int) -> dict[str, Any]:
        if self.is_sqlite:
            return {
                "poolclass": QueuePool,
                "pool_size": pool_size,
                "max_overflow": pool_size,
                "connect_args": {"check_same_thread": False, "timeout": 30.0},
            }
        return {"pool_size": pool_size, "max_overflow": pool_size, "pool_pre_ping": True}

    def _set_pragmas(self, connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # BEGIN is ours, see _begin_sqlite
        journal = "WAL" if self._wal else "PERSIST"
        for pragma in (f"journal_mode={journal}", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=30000"):
            connection.execute(f"PRAGMA {pragma}")

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that writes nothing; rolled back at the end."""
        with self._read_lock, _translated_errors(), Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextlib.contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that is committed when the block ends and rolled back when it raises.

        Never call the blob store inside: no transaction is held across object-store I/O.
        """
        with self._write_lock, _translated_errors(), Session(self._write_engine, expire_on_commit=False) as session:
            yield session
            session.commit()

    @contextlib.contextmanager
    def write_connection(self) -> Iterator[Connection]:
        """Like `write`, for migrations: a bare connection whose schema changes are one transaction."""
        with self._write_lock, _translated_errors(), self._write_engine.begin() as connection:
            yield connection

    @property
    def journal(self) -> str:
        """How commits are made durable, for the log."""
        if not self.is_sqlite:
            return "server"
        return "WAL" if self._wal else "PERSIST"

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
    write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    """Turns what the driver raises about the database itself into this package's errors."""
    try:
        yield
    except PoolTimeout as exc:
        raise DatabaseBusy("no database connection became free") from exc
    except DBAPIError as exc:
        if isinstance(exc, OperationalError) or exc.connection_invalidated:
            raise _failure_of(str(exc.orig)) from exc
        raise


def _failure_of(message: str) -> DatabaseFailed:
    lowered = message.lower()
    if "full" in lowered or "no space" in lowered:
        return DatabaseFull(message)
    if "locked" in lowered or "busy" in lowered:
        return DatabaseBusy(message)
    return DatabaseUnavailable(message)
