"""Revision 0002 with data: tokens keep their project, use is counted, and going back widens no token."""

from __future__ import annotations

from typing import Any

from alembic import command
from sqlalchemy import text

from shardkeep_service.access.usage import counted_bytes, used_bytes
from shardkeep_service.database.database import Database
from shardkeep_service.database.migrate import alembic_config

TOKEN = (
    "INSERT INTO tokens (id, name, hash, prefix, scope, project_id, created_at)"
    " VALUES (:id, 'n', :id, 'p', :scope, :project, 5)"
)
CHUNK = (
    "INSERT INTO chunks (project_id, digest, size_bytes, crc64, object_key, state, verification, origin_run_id,"
    " origin_checkpoint_id, claimed_at, stored_at, uploads)"
    " VALUES (:project, :digest, :size, '0', 'k', 'stored', 'verified', 'run_1', 'ckp_1', 1, 1, 1)"
)


def migrate(database: Database, revision: str, *, down: bool = False) -> None:
    with database.schema_connection() as connection:
        (command.downgrade if down else command.upgrade)(alembic_config(connection), revision)


def write(database: Database, statement: str, **values: object) -> None:
    with database.write() as session:
        session.execute(text(statement), values)


def read(database: Database, statement: str) -> list[tuple[Any, ...]]:
    with database.read() as session:
        return [tuple(row) for row in session.execute(text(statement))]


def test_bound_tokens_stay_bound_and_what_is_stored_counts(database: Database) -> None:
    migrate(database, "0001")
    for project in ("prj_1", "prj_2"):
        write(database, "INSERT INTO projects (id, name, created_at) VALUES (:id, :id, 1)", id=project)
    write(database, TOKEN, id="tok_1", scope="write", project="prj_1")
    write(database, TOKEN, id="tok_2", scope="admin", project=None)
    for number, project in enumerate(("prj_1", "prj_1", "prj_2")):
        write(database, CHUNK, project=project, digest=f"d{number}", size=10**number)
    migrate(database, "0002")
    assert read(database, "SELECT token_id, project_id FROM token_projects") == [("tok_1", "prj_1")]
    with database.read() as session:
        for project, size in (("prj_1", 11), ("prj_2", 100)):
            assert used_bytes(session, project) == size
    migrate(database, "head")
    with database.read() as session:
        assert used_bytes(session, "prj_1") == counted_bytes(session, "prj_1") == 11


def test_going_back_narrows_or_revokes_what_the_old_schema_cannot_say(database: Database) -> None:
    migrate(database, "0002")
    for project in ("prj_1", "prj_2"):
        write(database, "INSERT INTO projects (id, name, created_at) VALUES (:id, :id, 1)", id=project)
    for token_id, scope in (("tok_d", "delete"), ("tok_m", "metrics"), ("tok_w", "write"), ("tok_j", "write")):
        write(database, TOKEN, id=token_id, scope=scope, project="prj_1")
    write(database, "UPDATE tokens SET run_id = 'run_1', parent_id = 'tok_w' WHERE id = 'tok_j'")
    for project in ("prj_1", "prj_2"):
        write(database, "INSERT INTO token_projects (token_id, project_id) VALUES ('tok_w', :project)", project=project)
    migrate(database, "0001", down=True)
    found = read(database, "SELECT id, scope, project_id, revoked_at IS NULL FROM tokens ORDER BY id")
    assert [(token_id, scope, project, bool(usable)) for token_id, scope, project, usable in found] == [
        ("tok_d", "write", "prj_1", True),
        ("tok_j", "write", "prj_1", False),
        ("tok_m", "metrics", "prj_1", False),
        ("tok_w", "write", "prj_1", True),
    ]
