"""What the drivers raise about the database itself, as this package's errors. Mistakes of ours pass through."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import psycopg
from sqlalchemy.exc import DataError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from shardkeep_service.database.errors import (
    DatabaseBusy,
    DatabaseFailed,
    DatabaseFull,
    DatabaseUnavailable,
    ValueUnstorable,
)

_BUSY: Final = {
    "40001": "the transaction lost against another one",  # serialization_failure
    "40P01": "the transaction met another one that waited for it",  # deadlock_detected
    "53300": "the database server takes no more connections",  # too_many_connections
    "55P03": "another transaction held what this one needs for longer than the lock timeout",  # lock_not_available
    "57014": "the statement ran into the statement timeout",  # query_canceled
}
"""Repeat the transaction: nothing is wrong with it."""
_FULL: Final = frozenset({"53100"})  # disk_full
_UNAVAILABLE_CLASSES: Final = ("08", "53", "57", "58")
"""SQLSTATE classes: connections, resources, operator intervention, errors of the system below."""
_UNAVAILABLE: Final = frozenset({"25006", "25P03", "25P04"})
"""A server that may only read (it was demoted), and transactions that the server ended for standing still."""


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Raises `DatabaseFailed` for what the database could not do; anything else stays what it is."""
    try:
        yield
    except PoolTimeout as exc:
        raise DatabaseBusy("no database connection became free") from exc
    except DBAPIError as exc:
        failure = failure_of(exc)
        if failure is None:
            raise
        raise failure from exc


def failure_of(error: DBAPIError) -> DatabaseFailed | None:
    """The error of this package for one of the driver; None where the statement or its values are to blame."""
    if isinstance(error.orig, psycopg.Error):
        return _failure_of_postgresql(error, error.orig)
    if isinstance(error, OperationalError) or error.connection_invalidated:
        return _failure_of_sqlite(str(error.orig))
    return None


def _failure_of_postgresql(error: DBAPIError, cause: psycopg.Error) -> DatabaseFailed | None:
    state = cause.sqlstate or ""
    if state in _BUSY:
        return DatabaseBusy(_BUSY[state])
    if state in _FULL:
        return DatabaseFull(_first_line(cause))
    if state in _UNAVAILABLE or state.startswith(_UNAVAILABLE_CLASSES) or error.connection_invalidated:
        return DatabaseUnavailable(_first_line(cause))
    if isinstance(error, DataError):
        return ValueUnstorable(_first_line(cause))
    if isinstance(error, OperationalError) and not state:  # libpq's own: it could not connect, or lost the connection
        return DatabaseUnavailable(_first_line(cause))
    return None


def _failure_of_sqlite(message: str) -> DatabaseFailed:
    lowered = message.lower()
    if "full" in lowered or "no space" in lowered:
        return DatabaseFull(message)
    if "locked" in lowered or "busy" in lowered:
        return DatabaseBusy(message)
    return DatabaseUnavailable(message)


def _first_line(cause: psycopg.Error) -> str:
    """Without the statement and the position in it, which say nothing to an operator."""
    return str(cause).partition("\n")[0]
