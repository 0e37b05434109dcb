"""Counting what requests fetch: statements, and the rows that the database hands over for each."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import event

from shardkeep_service.database.database import Database

_REQUEST_THREADS = "AnyIO"
"""What runs in the background has threads of other names."""
_OF_THE_GATE = ("BEGIN", "tokens.hash =", "SELECT token_projects.project_id", "clock_timestamp()")
"""Statements that look a token up, which the gate then remembers for a while, begin a transaction or ask the time."""


@dataclass(slots=True)
class Fetched:
    """One entry for each statement that a request sent."""

    statements: list[str] = field(default_factory=list)
    parameters: list[Any] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    @property
    def most(self) -> int:
        """The rows of the statement that fetched most."""
        return max(self.rows, default=0)

    @property
    def widest(self) -> str:
        """That statement."""
        return self.statements[self.rows.index(self.most)] if self.rows else ""


class _CountingCursor:
    """A driver's cursor that counts the rows it gives."""

    def __init__(self, cursor: Any, fetched: Fetched, index: int) -> None:
        self._cursor, self._fetched, self._index = cursor, fetched, index

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def fetchone(self) -> Any:
        row = self._cursor.fetchone()
        self._fetched.rows[self._index] += row is not None
        return row

    def fetchmany(self, *arguments: Any) -> Any:
        return self._counted(self._cursor.fetchmany(*arguments))

    def fetchall(self) -> Any:
        return self._counted(self._cursor.fetchall())

    def _counted(self, rows: Any) -> Any:
        self._fetched.rows[self._index] += len(rows)
        return rows


@contextlib.contextmanager
def counted(database: Database) -> Iterator[Fetched]:
    """What requests fetch while the block runs, but for the look-up of their token and the clock."""
    fetched = Fetched()

    def wrap(_connection: object, cursor: Any, statement: str, parameters: Any, context: Any, _many: bool) -> None:
        if _REQUEST_THREADS not in threading.current_thread().name or any(part in statement for part in _OF_THE_GATE):
            return
        fetched.statements.append(statement)
        fetched.parameters.append(parameters)
        fetched.rows.append(0)
        context.cursor = _CountingCursor(cursor, fetched, len(fetched.rows) - 1)

    event.listen(database.engine, "after_cursor_execute", wrap)
    try:
        yield fetched
    finally:
        event.remove(database.engine, "after_cursor_execute", wrap)


def plan_of(database: Database, fetched: Fetched, part: str) -> str:
    """How the database reads what the one statement asks for that contains `part`, whatever its tables hold now."""
    [at] = [number for number, statement in enumerate(fetched.statements) if part in statement]
    explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
    with database.read() as session:
        connection = session.connection()
        if not database.is_sqlite:
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")  # the quickest for tables of few rows
        rows = connection.exec_driver_sql(f"{explain} {fetched.statements[at]}", fetched.parameters[at])
        return "\n".join(str(row[-1]) for row in rows)
