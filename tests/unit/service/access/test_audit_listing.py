"""Reading the audit log: what is asked for is found by an index, however long the log is."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, text

from shardkeep.protocol import routes
from shardkeep_service.access.models import AuditEntry
from tests.unit.service.access.holders import first_admin
from tests.unit.service.access.query_plans import planned
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService

pytestmark = BOTH_DATABASES

TARGETS = 500
ENTRIES_OF_EACH = 4


@pytest.fixture
def long_log(local: LocalService) -> LocalService:
    """Long enough for reading all of it to cost more than an index does."""
    rows = [
        {"at": number, "actor": "tok_1", "actor_name": "x", "action": "run.create", "target": f"run_{number % TARGETS}"}
        for number in range(TARGETS * ENTRIES_OF_EACH)
    ]
    with local.database.write() as session:
        session.execute(insert(AuditEntry), rows)
        if not local.database.is_sqlite:
            session.execute(text("ANALYZE audit_log"))
    return local


@pytest.mark.parametrize("path", [routes.AUDIT, routes.AUDIT_EXPORT])
def test_entries_of_one_target_are_found_by_its_index(long_log: LocalService, path: str) -> None:
    with planned(long_log.database, "audit_log") as plans:
        assert first_admin(long_log).send("GET", path, query={"target": "run_7"}).content.count(b'"run_7"') == 4
    assert plans
    assert all("ix_audit_log_target_id" in plan for plan in plans), plans
