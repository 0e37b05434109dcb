"""How a database goes about the statements that a block sends to one table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from sqlalchemy import event

from shardkeep_service.database.database import Database


@contextlib.contextmanager
def planned(database: Database, table: str) -> Iterator[list[str]]:
    """The plans, as text, of what read from the table while the block ran; filled at its end."""
    sent: list[tuple[str, Any]] = []
    plans: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        if f"FROM {table} " in " ".join(statement.split()) and statement.lstrip().startswith("SELECT"):
            sent.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield plans
    finally:
        event.remove(database.engine, "before_cursor_execute", note)
    explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
    with database.read() as session:
        for statement, parameters in sent:
            rows = session.connection().exec_driver_sql(f"{explain} {statement}", parameters).all()
            plans.append("\n".join(str(row[-1]) for row in rows))
