"""Inserting a row unless it exists, the same on both databases and without failing the transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import literal
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from shardkeep_service.database.base import Base


def insert_if_absent(session: Session, model: type[Base], values: Mapping[str, Any]) -> bool:
    """Whether the row was made now; False where a unique constraint says that it exists.

    On PostgreSQL it waits for another transaction that is making the same row. After False, a new statement sees it.
    """
    statement = _insert(session, model).values(values).on_conflict_do_nothing()
    return session.execute(statement.returning(literal(1))).first() is not None


def insert_absent(session: Session, model: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """The same for many rows of the same columns, without telling which were made now."""
    if rows:
        session.execute(_insert(session, model).on_conflict_do_nothing(), list(rows))


def _insert(session: Session, model: type[Base]) -> sqlite.Insert | postgresql.Insert:
    on_sqlite = session.get_bind().dialect.name == "sqlite"
    return (sqlite.insert if on_sqlite else postgresql.insert)(model)
