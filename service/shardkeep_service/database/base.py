"""The declarative base: one metadata with named constraints, so that every one of them can be altered later."""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import BigInteger, Integer, MetaData, String
from sqlalchemy.orm import DeclarativeBase, mapped_column

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

BigInt = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits; on SQLite plain INTEGER, which is 64 bits too and may autoincrement as a rowid."""

Id = Annotated[str, mapped_column(String(40))]
"""A random id with its prefix."""
Micros = Annotated[int, mapped_column(BigInt)]
"""A moment of database time: microseconds since 1970 UTC."""


class Base(DeclarativeBase):
    """Root of every table."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
