"""Transactions, and what the driver raises turned into this package's errors."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from shardkeep_service.database.database import SAFE_WAL_VERSION, Database
from shardkeep_service.database.errors import DatabaseBusy, DatabaseFull, DatabaseUnavailable


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'x.db'}")
    with database.write() as session:
        session.execute(text("CREATE TABLE t (n INTEGER UNIQUE, body BLOB)"))
    yield database
    database.close()


def count(database: Database) -> int:
    with database.read() as session:
        return int(session.execute(text("SELECT count(*) FROM t")).scalar_one())


def test_a_block_that_raises_writes_nothing(database: Database) -> None:
    def insert_and_fail() -> None:
        with database.write() as session:
            session.execute(text("INSERT INTO t (n) VALUES (1)"))
            raise KeyError

    with pytest.raises(KeyError):
        insert_and_fail()
    assert count(database) == 0


def test_reading_and_then_writing_never_loses_an_update(database: Database) -> None:
    with database.write() as session:
        session.execute(text("INSERT INTO t (n) VALUES (0)"))

    def add() -> None:
        for _ in range(20):
            with database.write() as session:
                n = session.execute(text("SELECT n FROM t")).scalar_one()
                session.execute(text("UPDATE t SET n = :n"), {"n": n + 1})

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as session:
        assert session.execute(text("SELECT n FROM t")).scalar_one() == 80


def test_an_old_sqlite_keeps_a_rollback_journal_and_commits_are_synced(database: Database) -> None:
    with database.read() as session:
        journal = session.execute(text("PRAGMA journal_mode")).scalar_one()
        synchronous = session.execute(text("PRAGMA synchronous")).scalar_one()
        foreign_keys = session.execute(text("PRAGMA foreign_keys")).scalar_one()
    assert journal == ("wal" if sqlite3.sqlite_version_info >= SAFE_WAL_VERSION else "persist")
    assert journal.upper() == database.journal
    assert (synchronous, foreign_keys) == (2, 1)


def test_a_full_database_is_database_full(database: Database) -> None:
    def insert_too_much() -> None:
        with database.write() as session:
            session.execute(text("PRAGMA max_page_count = 5"))
            session.execute(text("INSERT INTO t (n, body) VALUES (1, zeroblob(100000))"))

    with pytest.raises(DatabaseFull):
        insert_too_much()


def test_a_database_locked_by_another_process_is_busy(database: Database, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout = 10")
    try:
        with pytest.raises(DatabaseBusy), database.write() as session:
            session.execute(text("SELECT 1"))
    finally:
        other.close()


def test_other_failures_of_the_database_are_unavailable_and_mistakes_are_not_hidden(database: Database) -> None:
    with pytest.raises(DatabaseUnavailable), database.read() as session:
        session.execute(text("SELECT * FROM absent"))
    with pytest.raises(IntegrityError), database.write() as session:
        session.execute(text("INSERT INTO t (n) VALUES (1), (1)"))
