"""Revision 0007 with findings: those of before are found by each checkpoint that they name or belong to."""

from __future__ import annotations

import json

from sqlalchemy import text

from shardkeep_service.database.database import Database
from shardkeep_service.database.migrate import upgrade
from tests.integration.migrations.test_run_sums_revision import migrate, write

FINDING = (
    "INSERT INTO integrity_findings (project_id, checkpoint_id, kind, damage, object_key, detail, harmed, found_at)"
    " VALUES ('prj_1', :checkpoint_id, :kind, 'damaged', :kind, 'detail', :harmed, 1)"
)


def test_findings_of_before_are_found_by_their_checkpoints(database: Database) -> None:
    migrate(database, "0006")
    for kind, checkpoint_id, harmed in (
        ("chunk", "ckp_1", ["ckp_2", "ckp_3"]),
        ("manifest", "ckp_3", ["ckp_3"]),
        ("commit_record", "ckp_4", []),
    ):
        write(database, FINDING, kind=kind, checkpoint_id=checkpoint_id, harmed=json.dumps(harmed))

    upgrade(database)

    query = (
        "SELECT checkpoint_id, kind FROM finding_checkpoints c JOIN (SELECT id, kind FROM integrity_findings) f"
        " ON f.id = c.finding_id ORDER BY checkpoint_id, kind"
    )
    with database.read() as session:
        assert session.execute(text(query)).all() == [
            ("ckp_2", "chunk"),
            ("ckp_3", "chunk"),
            ("ckp_3", "manifest"),
            ("ckp_4", "commit_record"),
        ]
