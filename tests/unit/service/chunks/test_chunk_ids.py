"""Chunk ids: manifests store them, so the id of a removed chunk never comes back."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import text

from shardkeep_service.database.database import Database
from shardkeep_service.database.migrate import upgrade


def test_an_id_is_not_given_again_after_its_row_is_gone(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'catalogue.db'}")
    upgrade(database)
    with database.read() as session:
        schema = session.execute(text("SELECT sql FROM sqlite_master WHERE name = 'chunks'")).scalar_one()
    database.close()
    assert "AUTOINCREMENT" in schema
