"""PostgreSQL: what the server refuses turned into this package's errors, its time-outs, and its values."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import IntegrityError, ProgrammingError
from sqlalchemy.orm import Session

from shardkeep_service.database.database import Database
from shardkeep_service.database.errors import (
    DatabaseBusy,
    DatabaseFailed,
    DatabaseFull,
    DatabaseUnavailable,
    ValueUnstorable,
)
from shardkeep_service.database.open_database import open_database
from shardkeep_service.database.options import DatabaseOptions
from shardkeep_service.settings import Settings
from tests.servers.postgres import Postgres
from tests.unit.service.replicas.at_once import at_once


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    url = postgres.new_database()
    with postgres.connect(url) as connection:
        connection.execute("CREATE TABLE t (n bigint UNIQUE, body text)")
        connection.execute("INSERT INTO t VALUES (1, ''), (2, '')")
    yield url
    postgres.drop_database(url)


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with closing(Database(url)) as database:
        yield database


def touch(database: Database, number: int) -> None:
    """Updates a row, in a transaction of its own."""
    with database.write() as session:
        append(session, number)


def append(session: Session, number: int) -> None:
    session.execute(text("UPDATE t SET body = body || 'x' WHERE n = :n"), {"n": number})


@pytest.mark.parametrize(
    ("state", "failure"),
    [
        ("40001", DatabaseBusy),
        ("40P01", DatabaseBusy),
        ("53300", DatabaseBusy),
        ("55P03", DatabaseBusy),
        ("57014", DatabaseBusy),
        ("53100", DatabaseFull),
        ("08006", DatabaseUnavailable),
        ("25006", DatabaseUnavailable),
        ("25P03", DatabaseUnavailable),
        ("53200", DatabaseUnavailable),
        ("57P01", DatabaseUnavailable),
        ("57P02", DatabaseUnavailable),
        ("57P03", DatabaseUnavailable),
        ("58030", DatabaseUnavailable),
        ("22001", ValueUnstorable),
        ("22021", ValueUnstorable),
    ],
)
def test_each_state_of_the_server_is_a_failure_of_its_kind(
    database: Database, state: str, failure: type[DatabaseFailed]
) -> None:
    raising = text(f"DO $$ BEGIN RAISE EXCEPTION 'told to' USING ERRCODE = '{state}'; END $$")
    with pytest.raises(DatabaseFailed) as caught, database.write() as session:
        session.execute(raising)
    assert type(caught.value) is failure


def test_mistakes_of_ours_are_not_hidden(database: Database) -> None:
    with pytest.raises(IntegrityError), database.write() as session:
        session.execute(text("INSERT INTO t (n) VALUES (1)"))
    with pytest.raises(ProgrammingError), database.write() as session:
        session.execute(text("SELECT * FROM absent"))


def test_waiting_for_a_lock_ends_with_busy(url: str, postgres: Postgres) -> None:
    with closing(Database(url, DatabaseOptions(lock_timeout_seconds=0.2))) as database:
        with postgres.connect(url) as other, other.transaction():
            other.execute("UPDATE t SET body = 'held' WHERE n = 1")
            with pytest.raises(DatabaseBusy, match="lock timeout"):
                touch(database, 1)
        touch(database, 1)


def test_two_transactions_that_wait_for_each_other_are_told_apart(database: Database) -> None:
    both_hold_one = threading.Barrier(2)

    def attempt(first: int, second: int) -> str:
        try:
            with database.write() as session:
                append(session, first)
                both_hold_one.wait(60)
                append(session, second)
        except DatabaseBusy as busy:
            return str(busy)
        return "done"

    ended = at_once(partial(attempt, 1, 2), partial(attempt, 2, 1))
    assert sorted(ended) == ["done", "the transaction met another one that waited for it"]


def test_a_statement_that_takes_too_long_is_busy(url: str) -> None:
    with (
        closing(Database(url, DatabaseOptions(statement_timeout_seconds=0.5))) as database,
        pytest.raises(DatabaseBusy, match="statement timeout"),
        database.read() as session,
    ):
        session.execute(text("SELECT pg_sleep(60)"))


def test_a_transaction_that_stands_still_is_ended_by_the_server_and_frees_its_locks(
    database: Database, url: str
) -> None:
    def stand_still(quick: Database) -> None:
        with quick.write() as session:
            session.execute(text("UPDATE t SET body = 'held' WHERE n = 1"))
            time.sleep(0.6)
            session.execute(text("SELECT 1"))

    with (
        closing(Database(url, DatabaseOptions(idle_seconds=0.2))) as quick,
        pytest.raises(DatabaseUnavailable),
    ):
        stand_still(quick)
    touch(database, 1)


def test_a_thread_that_finds_no_free_connection_is_told_busy(url: str) -> None:
    database = Database(url, DatabaseOptions(connections=2, wait_seconds=0.2))
    with contextlib.ExitStack() as held:
        for _ in range(2):
            held.enter_context(database.read()).execute(text("SELECT 1"))
        with pytest.raises(DatabaseBusy, match="no database connection"):
            touch(database, 1)
    touch(database, 1)
    database.close()


def test_a_connection_that_the_server_ended_is_replaced(database: Database, url: str, postgres: Postgres) -> None:
    def end_own_connection() -> None:
        with database.write() as session:
            own = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
            with postgres.connect(url) as other:
                other.execute("SELECT pg_terminate_backend(%s, 60000)", [own])
            session.execute(text("UPDATE t SET body = 'lost'"))

    with pytest.raises(DatabaseUnavailable):
        end_own_connection()
    touch(database, 1)
    with postgres.connect(url) as other:  # while the connection lies in the pool
        other.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'shardkeep'"
        )
    touch(database, 1)


def test_a_server_that_restarts_is_unavailable_and_then_there_again() -> None:
    server = Postgres()
    try:
        server.start()
        database = Database(server.new_database())
        with database.write() as session:
            session.execute(text("CREATE TABLE t AS SELECT 1 AS n"))
        server.stop()
        with pytest.raises(DatabaseUnavailable), database.read() as session:
            session.execute(text("SELECT 1"))
        server.start()
        with database.read() as session:
            assert session.execute(text("SELECT n FROM t")).scalar_one() == 1
        database.close()
    finally:
        server.close()


def test_a_read_sees_one_moment_and_may_not_write(database: Database) -> None:
    with database.read() as session:
        before = session.execute(text("SELECT body FROM t WHERE n = 1")).scalar_one()
        touch(database, 1)
        assert session.execute(text("SELECT body FROM t WHERE n = 1")).scalar_one() == before
    with pytest.raises(DatabaseUnavailable), database.read() as session:
        session.execute(text("UPDATE t SET body = 'x'"))


def test_time_is_the_server_s_and_goes_on_within_a_transaction(
    database: Database, url: str, postgres: Postgres
) -> None:
    with postgres.connect(url) as other:
        before = server_micros(other)
        with database.write() as session:
            first = database.now(session)
            time.sleep(0.01)
            assert database.now(session) >= first + 10_000
        assert before <= first <= server_micros(other)


def server_micros(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000000").fetchone()
    assert row is not None
    return int(row[0])


def test_a_text_with_a_nul_is_unstorable_and_not_a_fault_of_the_service(database: Database) -> None:
    with pytest.raises(ValueUnstorable, match="NUL"), database.write() as session:
        session.execute(text("UPDATE t SET body = :body"), {"body": "a\0b"})


def test_connections_say_who_they_are_and_what_the_url_says_wins(postgres: Postgres, url: str) -> None:
    own = make_url(url).update_query_dict({"application_name": "mine", "options": "-c lock_timeout=1234"})
    settings = Settings(database_url=own.render_as_string(hide_password=False))
    for used, name, timeout in ((settings, "mine", "1234ms"), (Settings(database_url=url), "shardkeep serve", "10s")):
        database = open_database(used, application="serve")
        with database.read() as session:
            assert session.execute(text("SHOW application_name")).scalar_one() == name
            assert session.execute(text("SHOW lock_timeout")).scalar_one() == timeout
            assert session.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one() == "1min"
        database.close()


def test_a_url_without_a_driver_uses_ours_and_options_of_tls_reach_the_server(postgres: Postgres, url: str) -> None:
    for scheme in ("postgresql", "postgres"):
        settings = Settings(database_url=make_url(url).set(drivername=scheme).render_as_string(hide_password=False))
        database = open_database(settings, application="serve")
        with database.read() as session:
            assert session.execute(text("SELECT count(*) FROM t")).scalar_one() == 2
        database.close()
    encrypted = make_url(url).update_query_dict({"sslmode": "require"}).render_as_string(hide_password=False)
    database = Database(encrypted)
    with pytest.raises(DatabaseUnavailable, match="SSL"), database.read() as session:
        session.execute(text("SELECT 1"))
    database.close()


def test_the_password_is_in_no_error_and_in_no_text_of_the_settings(postgres: Postgres, url: str) -> None:
    wrong = make_url(url).set(password="a-wrong-secret").render_as_string(hide_password=False)
    settings = Settings(database_url=wrong)
    database = open_database(settings, application="serve")
    with pytest.raises(DatabaseUnavailable) as caught, database.read() as session:
        session.execute(text("SELECT 1"))
    shown = [repr(settings), str(settings), str(caught.value), repr(caught.value.__cause__), repr(database.engine)]
    assert not any("a-wrong-secret" in one for one in shown), shown
    database.close()


def test_a_url_with_a_driver_that_is_not_there_says_how_to_write_one() -> None:
    settings = Settings(database_url="postgresql+other://somebody:secret@host/name")
    with pytest.raises(DatabaseUnavailable, match="postgresql://") as caught:
        open_database(settings, application="serve")
    assert "secret" not in str(caught.value)


def test_the_server_is_the_one_that_production_is_told_to_use(postgres: Postgres, url: str) -> None:
    with psycopg.connect(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)) as own:
        assert own.info.server_version >= 140_000
