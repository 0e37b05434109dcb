"""Many rows as one parameter of a statement: a JSON text that the database itself takes apart.

A thousand rows of VALUES cost 15 ms of CPU on SQLite and 130 on PostgreSQL, one JSON text 7 on both; and no limit on
the number of parameters applies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import JSON, BigInteger, ColumnElement, FromClause, String, bindparam, cast, func
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeEngine

RowType: TypeAlias = type[str] | type[int]


@dataclass(frozen=True, slots=True)
class RowList:
    """What stands in FROM, and its columns in the order of the rows' items."""

    source: FromClause
    columns: Sequence[ColumnElement[Any]]


def row_list(dialect: str, parameter: str, types: Sequence[RowType]) -> RowList:
    """The rows that `pack_rows` wrote into the parameter of that name."""
    if dialect == "sqlite":
        source = func.json_each(bindparam(parameter, type_=String)).table_valued("value", name=f"{parameter}_rows")
        columns = [
            func.json_extract(source.c.value, f"$[{place}]", type_=_sql_type(kind)) for place, kind in enumerate(types)
        ]
        return RowList(source, columns)
    document = cast(bindparam(parameter, type_=String), postgresql.JSON)
    elements = func.json_array_elements(document, type_=JSON).table_valued("value").render_derived(f"{parameter}_rows")
    value = elements.c.value
    return RowList(elements, [cast(value.op("->>")(place), _sql_type(kind)) for place, kind in enumerate(types)])


def pack_rows(rows: Iterable[Sequence[str | int]]) -> str:
    """The rows as the value of the parameter."""
    return json.dumps(list(map(list, rows)))


def _sql_type(kind: RowType) -> TypeEngine[Any]:
    return String() if kind is str else BigInteger()
