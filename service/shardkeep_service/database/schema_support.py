"""Which versions of the service may run on which revision of the schema, written into the database itself.

Migrations expand first (a column, a table, a default) and contract a release later. So a version runs on the schema
it brings and on the next release's; yet it cannot read the next release's migrations. Each migration therefore names
the oldest revision whose code may run on it, and migrating writes that down here, where older code finds it.
"""

from __future__ import annotations

from typing import Any, Final

from alembic.script import Script
from sqlalchemy import Connection, String, delete, insert, inspect, select
from sqlalchemy.orm import Mapped, mapped_column

from shardkeep_service.database.base import Base

OLDEST_CODE: Final = "oldest_code"
"""The attribute of a migration; where it is absent, the revision before it."""


class SchemaSupport(Base):
    """For one revision of the schema, the oldest revision whose code may run on it."""

    __tablename__ = "schema_support"

    revision: Mapped[str] = mapped_column(String(32), primary_key=True)
    oldest_code: Mapped[str] = mapped_column(String(32))


def oldest_code_of(script: Script) -> str:
    """The oldest revision whose code may run on the schema that this migration makes."""
    given = getattr(script.module, OLDEST_CODE, None)
    return str(given or script.down_revision or script.revision)


def write_support(connection: Connection, scripts: list[Script]) -> None:
    """Writes down what these migrations, all that lead to the present schema, say."""
    rows: list[dict[str, Any]] = [
        {"revision": script.revision, "oldest_code": oldest_code_of(script)} for script in scripts
    ]
    connection.execute(delete(SchemaSupport))
    connection.execute(insert(SchemaSupport), rows)


def supported_since(connection: Connection, revision: str) -> str | None:
    """The oldest revision whose code may run on `revision`; None where the database does not say."""
    if not inspect(connection).has_table(SchemaSupport.__tablename__):
        return None
    query = select(SchemaSupport.oldest_code).where(SchemaSupport.revision == revision)
    return connection.execute(query).scalar_one_or_none()
