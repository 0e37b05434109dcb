"""Migrations: from nothing to head, again without effect, never past what this version knows, and without drift."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from shardkeep_service.database.database import Database
from shardkeep_service.database.migrate import MigrationRefused, current_revision, drift, head_revision, upgrade


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'x.db'}")
    yield database
    database.close()


def test_an_empty_database_is_brought_to_head_and_has_the_schema_of_the_models(database: Database) -> None:
    assert current_revision(database) is None
    assert upgrade(database) == head_revision() == current_revision(database)
    assert drift(database) == []


def test_upgrading_again_changes_nothing(database: Database) -> None:
    upgrade(database)
    with database.write() as session:
        session.execute(text("INSERT INTO projects (id, name, created_at) VALUES ('prj_1', 'kept', 1)"))
    upgrade(database)
    with database.read() as session:
        assert session.execute(text("SELECT name FROM projects")).scalars().all() == ["kept"]


def test_a_database_of_a_newer_version_is_refused_and_left_alone(database: Database) -> None:
    upgrade(database)
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = 'from_the_future'"))
    with pytest.raises(MigrationRefused, match="newer"):
        upgrade(database)
    assert current_revision(database) == "from_the_future"


def test_a_column_without_a_migration_is_noticed(database: Database) -> None:
    upgrade(database)
    with database.write() as session:
        session.execute(text("ALTER TABLE projects ADD COLUMN surprise INTEGER"))
    assert drift(database) != []
