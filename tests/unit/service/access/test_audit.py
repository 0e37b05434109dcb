"""Audit entries belong to the transaction of the change, and say who asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from shardkeep_service.access.audit import WORKER, record
from shardkeep_service.access.models import AuditEntry
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.scopes import Scope
from shardkeep_service.database.database import Database
from shardkeep_service.database.migrate import upgrade

ASKER = Principal("tok_1", "the deleter", Scope.DELETE, frozenset({"prj_1"}))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'x.db'}")
    upgrade(database)
    yield database
    database.close()


def entries(database: Database) -> list[AuditEntry]:
    with database.read() as session:
        return list(session.scalars(select(AuditEntry).order_by(AuditEntry.id)))


def test_an_entry_says_who_did_what_to_what_and_when(database: Database) -> None:
    with database.write() as session:
        before = database.now(session)
        record(session, ASKER, "checkpoint.delete", target="ckp_1", project_id="prj_1", detail={"version": 3})
        record(session, WORKER, "checkpoint.purge", target="ckp_1")
    asked, worked = entries(database)
    assert (asked.actor, asked.actor_name, asked.action) == ("tok_1", "the deleter", "checkpoint.delete")
    assert (asked.target, asked.project_id, asked.detail) == ("ckp_1", "prj_1", {"version": 3})
    assert before <= asked.at <= worked.at
    assert (worked.actor, worked.project_id, worked.detail, worked.request_id) == ("worker", None, None, None)


def test_a_change_that_is_rolled_back_leaves_no_entry(database: Database) -> None:
    def change_and_fail() -> None:
        with database.write() as session:
            record(session, ASKER, "checkpoint.delete", target="ckp_1")
            session.flush()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        change_and_fail()
    assert entries(database) == []
