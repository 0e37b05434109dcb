"""Migrations from every revision, up and down, with rows in every table, on both databases."""

from __future__ import annotations

from typing import Final

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import text

from shardkeep_service.database.database import Database
from shardkeep_service.database.migrate import (
    alembic_config,
    check_schema,
    current_revision,
    drift,
    head_revision,
    migrations_dir,
    upgrade,
)
from tests.integration.migrations.schema_rows import Rows, fill_every_table, rows_of_every_table

REVISIONS: Final = [script.revision for script in ScriptDirectory(str(migrations_dir())).walk_revisions()][::-1]
"""Oldest first."""


def move(database: Database, revision: str, *, down: bool = False) -> None:
    """Migrates to a revision, whichever is the head."""
    with database.schema_connection() as connection:
        (command.downgrade if down else command.upgrade)(alembic_config(connection), revision)


def filled(database: Database, revision: str) -> Rows:
    """Brings the database to a revision and fills it; gives the rows."""
    move(database, revision)
    with database.write() as session:
        fill_every_table(session.connection())
    return everything(database)


def everything(database: Database) -> Rows:
    with database.read() as session:
        return rows_of_every_table(session.connection())


@pytest.mark.parametrize("revision", REVISIONS)
def test_rows_of_every_table_survive_the_way_to_the_head_as_they_were(database: Database, revision: str) -> None:
    before = filled(database, revision)
    assert all(len(rows) >= 2 for rows in before.values())

    assert upgrade(database) == head_revision() == check_schema(database)

    after = everything(database)
    for table, rows in before.items():
        for key, row in rows.items():
            assert {name: after[table][key][name] for name in row} == row, table
    assert drift(database) == []


@pytest.mark.parametrize("revision", [*reversed(REVISIONS), "base"])
def test_rows_survive_the_way_down_and_up_again(database: Database, revision: str) -> None:
    before = filled(database, "head")

    move(database, revision, down=True)
    kept = everything(database)
    assert current_revision(database) == (None if revision == "base" else revision)
    for table, rows in kept.items():
        full_row = next(iter(before[table]))  # the sparse one may have a NULL that the old schema does not take
        assert full_row in rows, table

    upgrade(database)
    assert drift(database) == []
    after = everything(database)
    for table, rows in kept.items():
        assert rows.keys() <= after[table].keys(), table


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_id_of_a_removed_chunk_is_not_given_again_after_migrating(database: Database, revision: str) -> None:
    filled(database, revision)
    insert = (
        "INSERT INTO chunks (project_id, digest, size_bytes, crc64, object_key, state, verification, origin_run_id,"
        " origin_checkpoint_id, claimed_at, stored_at, uploads) SELECT project_id, '{}', size_bytes, crc64, object_key,"
        " state, verification, origin_run_id, origin_checkpoint_id, claimed_at, stored_at, uploads FROM chunks"
        " ORDER BY id LIMIT 1 RETURNING id"
    )
    with database.write() as session:
        removed = session.execute(text(insert.format("removed"))).scalar_one()
        session.execute(text("DELETE FROM chunks WHERE id = :id"), {"id": removed})

    upgrade(database)

    with database.write() as session:
        assert session.execute(text(insert.format("new"))).scalar_one() > removed


def test_each_revision_follows_the_one_before_and_has_a_way_back(database: Database) -> None:
    for revision in REVISIONS:
        move(database, revision)
        assert current_revision(database) == revision
    for revision in reversed(REVISIONS[:-1]):
        move(database, revision, down=True)
        assert current_revision(database) == revision
    move(database, "base", down=True)
    with database.read() as session:
        assert set(rows_of_every_table(session.connection())) == set()
