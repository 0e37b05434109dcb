"""Conditions on many values in one parameter: digests and ids are looked up by the thousand.

`column IN (?, ?, ...)` makes SQLAlchemy render, and the database parse, a statement as long as the list each time. Here
the list is one parameter of a statement that both remember: JSON on SQLite, an array on PostgreSQL.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, BindParameter, Boolean, ColumnElement, Dialect, String, bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine


class _Many(TypeDecorator[Sequence[Any]]):
    """A list of texts or of integers as one parameter."""

    impl = String
    cache_ok = True

    def __init__(self, *, of_integers: bool) -> None:
        super().__init__()
        self.of_integers = of_integers

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String())
        return dialect.type_descriptor(ARRAY(BigInteger() if self.of_integers else String()))

    def process_bind_param(self, value: Sequence[Any] | None, dialect: Dialect) -> object:
        return json.dumps(value) if dialect.name == "sqlite" else value


class _OneOf(FunctionElement[bool]):
    name = "one_of"
    type = Boolean()
    inherit_cache = True
    _is_implicitly_boolean = True
    """Else SQLAlchemy compares it with 1 on SQLite, which then cannot use an index for it."""


@compiles(_OneOf, "sqlite")
def _on_sqlite(element: _OneOf, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({values}))"  # noqa: S608  (a parameter and a column)


@compiles(_OneOf, "postgresql")
def _on_postgresql(element: _OneOf, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} = ANY({values})"


TEXTS: Final[BindParameter[Sequence[str]]] = bindparam("texts", type_=_Many(of_integers=False))
INTEGERS: Final[BindParameter[Sequence[int]]] = bindparam("integers", type_=_Many(of_integers=True))


def among_texts(column: InstrumentedAttribute[str]) -> ColumnElement[bool]:
    """`column` is one of the parameter `texts`: a list, not any other sequence."""
    return _OneOf(column, TEXTS)


def among_integers(column: InstrumentedAttribute[int]) -> ColumnElement[bool]:
    """`column` is one of the parameter `integers`: a list of 64-bit integers."""
    return _OneOf(column, INTEGERS)
