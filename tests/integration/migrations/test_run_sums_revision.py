"""Revision 0007 with data: runs are summed up, and stay so when code that knows nothing of the sums writes."""

from __future__ import annotations

from alembic import command
from sqlalchemy import text

from shardkeep_service.database.database import Database
from shardkeep_service.database.migrate import alembic_config
from tests.unit.service.runs.run_sums import counted_sums, kept_sums

CHECKPOINT = (
    "INSERT INTO checkpoints (id, project_id, run_id, attempt_id, number, save, step, world_size, state, sequence,"
    " opened_at, deadline, arrived, committed_at, raw_bytes, stored_bytes, new_bytes, metrics, environment, pinned,"
    " quarantined, version) VALUES (:id, 'prj_1', 'run_1', 'att_1', :number, :number, :step, 1, :state, :number, 1, 1,"
    " 1, :number, :step, 20, 5, '{}', '{}', false, false, 1)"
)
"""As the revision before writes it."""


def migrate(database: Database, revision: str, *, down: bool = False) -> None:
    with database.schema_connection() as connection:
        (command.downgrade if down else command.upgrade)(alembic_config(connection), revision)


def write(database: Database, statement: str, **values: object) -> None:
    with database.write() as session:
        session.execute(text(statement), values)


def add_rows(database: Database) -> None:
    write(database, "INSERT INTO projects (id, name, created_at) VALUES ('prj_1', 'project', 1)")
    for run in ("run_1", "run_2"):
        insert = "INSERT INTO runs (id, project_id, name, created_at, attempts, opened, sequence)"
        write(database, f"{insert} VALUES (:id, 'prj_1', :id, 1, 1, 3, 3)", id=run)
    write(
        database,
        "INSERT INTO attempts (id, run_id, number, launch_id, ordinal, world_size, labels, created_at, passed_over)"
        " VALUES ('att_1', 'run_1', 1, 'launch', 0, 1, '{}', 1, '[]')",
    )
    for number, state in enumerate(("committed", "committed", "deleted", "aborted"), start=1):
        write(database, CHECKPOINT, id=f"ckp_{number}", number=number, step=number * 100, state=state)


def checked_sums(database: Database) -> tuple[object, ...]:
    with database.read() as session:
        kept = kept_sums(session)
        assert kept == counted_sums(session)
    assert kept["run_2"] == (0, 0, 0, 0, None, None, None)
    return kept["run_1"]


def test_what_is_committed_is_summed_up_and_kept_for_whoever_writes(database: Database) -> None:
    migrate(database, "0006")
    add_rows(database)

    migrate(database, "head")
    assert checked_sums(database) == (2, 10, 300, 40, "ckp_2", 200, 2)

    write(database, CHECKPOINT, id="ckp_5", number=5, step=500, state="committed")
    assert checked_sums(database) == (3, 15, 800, 60, "ckp_5", 500, 5)
    write(database, "UPDATE checkpoints SET state = 'deleted' WHERE state = 'committed'")
    assert checked_sums(database) == (0, 0, 0, 0, None, None, None)


def test_the_way_back_leaves_a_schema_that_can_be_written_and_brought_up_again(database: Database) -> None:
    migrate(database, "head")
    migrate(database, "0006", down=True)
    add_rows(database)
    write(database, "UPDATE checkpoints SET state = 'committed' WHERE id = 'ckp_3'")

    migrate(database, "head")

    assert checked_sums(database) == (3, 15, 600, 60, "ckp_3", 300, 3)
