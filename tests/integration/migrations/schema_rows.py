"""Rows for every table of whatever schema a database has, made from that schema: no table can be forgotten."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    insert,
    select,
)

Rows: TypeAlias = dict[str, dict[tuple[Any, ...], dict[str, Any]]]
"""Rows by table and primary key."""

FULL, SPARSE = 1, 2
"""Two rows a table: one with a value in every column, one with NULL wherever that is allowed."""
NOT_OURS: Final = frozenset({"alembic_version", "schema_support"})
_WORDS: Final = {
    "state": "committed",
    "scope": "write",
    "verification": "verified",
    "kind": "commit_record",
    "decision": "fresh",
    "crc64": "00000000000000ff",
}
_NAMES: Final = {("outbox", "subject_id"): ("checkpoints", "id")}
"""Columns that name a row without a foreign key."""
_BIG: Final = 1 << 40


def reflected(connection: Connection) -> MetaData:
    """The schema that the database has."""
    metadata = MetaData()
    metadata.reflect(connection)
    return metadata


def fill_every_table(connection: Connection) -> None:
    """Inserts two rows into every table, parents first."""
    metadata = reflected(connection)
    for table in metadata.sorted_tables:
        if table.name not in NOT_OURS:
            for row in (FULL, SPARSE):
                connection.execute(insert(table).values(_row(table, row)))


def rows_of_every_table(connection: Connection) -> Rows:
    """Everything the database holds."""
    metadata = reflected(connection)
    found: Rows = {}
    for table in metadata.sorted_tables:
        if table.name not in NOT_OURS:
            rows = [dict(row) for row in connection.execute(select(table)).mappings()]
            key = [column.name for column in table.primary_key.columns]
            found[table.name] = {tuple(row[name] for name in key): row for row in rows}
    return found


def _row(table: Table, row: int) -> dict[str, Any]:
    values = {
        column.name: _value(table, column, row)
        for column in table.columns
        if (row == FULL or not column.nullable) and not _is_given_by_the_database(table, column)
    }
    return {name: value for name, value in values.items() if value is not None}


def _is_given_by_the_database(table: Table, column: Column[Any]) -> bool:
    """An id that counts up: the first rows get 1 and 2, as if they had been numbered here."""
    only_key = len(table.primary_key.columns) == 1 and column.primary_key
    return only_key and isinstance(column.type, Integer) and not column.foreign_keys


def _value(table: Table, column: Column[Any], row: int) -> Any:
    for key in column.foreign_keys:
        if key.column.table is table:  # a first row has no other one to name
            return None
        return _value(key.column.table, key.column, row)
    match column.type:
        case Boolean():
            return row == FULL
        case BigInteger():
            return row if column.primary_key else _BIG + row
        case Integer():
            return row
        case JSON():
            return {"row": row, "text": "päßword", "list": [1, None, 0.5]}
        case LargeBinary():
            return bytes([0, row, 255])
        case String():
            return _text(table, column, row)
        case _:
            raise NotImplementedError(f"{table.name}.{column.name} has the type {column.type!r}")


def _text(table: Table, column: Column[Any], row: int) -> str:
    if (table.name, column.name) in _NAMES:
        return "{}.{}.{}".format(*_NAMES[table.name, column.name], row)
    unique = column.primary_key or column.unique or _in_unique_constraint(table, column)
    if column.name in _WORDS and not unique:
        return _WORDS[column.name]
    assert isinstance(column.type, String)
    return f"{table.name}.{column.name}.{row}"[-(column.type.length or 100) :]


def _in_unique_constraint(table: Table, column: Column[Any]) -> bool:
    return any(column.name in constraint.columns for constraint in table.constraints if hasattr(constraint, "columns"))
