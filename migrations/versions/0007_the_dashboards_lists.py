"""what the dashboard lists: sums of runs, kept by triggers; sign-ins; progress of sessions; requests to save now;
findings by checkpoint

A service of the revision before commits and deletes without knowing the sums, so the database keeps them itself. On
SQLite a later revision that makes `checkpoints` or `runs` anew (`batch_alter_table`) drops the triggers first and
creates them again. What such a service finds damaged while this one is rolled out is in the list of all findings only,
not in that of a checkpoint.

On PostgreSQL the triggers fire once a statement: a run that is deleted flips all its checkpoints in one, and in one
transaction each further change of the same row of `runs` would walk past all the versions made before.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: None = None
depends_on: None = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_RUN_ORDERS = ("name", "created_at", "last_committed_step", "last_committed_at", "stored_bytes")
_RUN_COLUMNS = ("last_committed_step", "last_committed_at", "last_checkpoint_id")
_RUN_SUMS = ("committed_checkpoints", "stored_bytes", "raw_bytes", "named_bytes")
_SESSION_SUMS = ("offered_bytes", "present_bytes")
_ATTEMPT_COLUMNS = ("save_requested_at", "save_requested_by", "save_request_checkpoint_id")

_CHECKPOINT_INDEXES = {
    "ix_checkpoints_state_opened_at_id": ["state", "opened_at", "id"],
    "ix_checkpoints_project_id_opened_at_id": ["project_id", "opened_at", "id"],
    "ix_checkpoints_project_id_state_opened_at_id": ["project_id", "state", "opened_at", "id"],
    "ix_checkpoints_run_id_state_number": ["run_id", "state", "number"],
    "ix_checkpoints_committed_at": ["committed_at", "project_id", "run_id", "new_bytes", "raw_bytes"],
}
_PARTIAL_INDEXES = {
    "ix_checkpoints_run_id_committed_sequence": (["run_id", "sequence"], "state = 'committed'", "state = 'committed'"),
    "ix_checkpoints_run_id_number_kept": (["run_id", "number"], "purged_at IS NULL", "purged_at IS NULL"),
    "ix_checkpoints_pinned": (["opened_at", "id"], "pinned = 1", "pinned"),
    "ix_checkpoints_quarantined": (["state", "project_id"], "quarantined = 1", "quarantined"),
}
"""Columns, and the condition on SQLite and on PostgreSQL."""
_OTHER_INDEXES = {
    "ix_checkpoint_tags_tag_checkpoint_id": ("checkpoint_tags", ["tag", "checkpoint_id"]),
    "ix_tokens_created_at_id": ("tokens", ["created_at", "id"]),
    "ix_tokens_project_id_created_at_id": ("tokens", ["project_id", "created_at", "id"]),
    "ix_audit_log_target_id": ("audit_log", ["target", "id"]),
}
_DECLARED = "verification = 'declared'"

_ADD = """
UPDATE runs SET committed_checkpoints = committed_checkpoints + 1,
  stored_bytes = stored_bytes + coalesce(NEW.new_bytes, 0),
  raw_bytes = raw_bytes + coalesce(NEW.raw_bytes, 0),
  named_bytes = named_bytes + coalesce(NEW.stored_bytes, 0)
WHERE id = NEW.run_id AND NEW.state = 'committed';
"""
_SUBTRACT = """
UPDATE runs SET committed_checkpoints = committed_checkpoints - 1,
  stored_bytes = stored_bytes - coalesce(OLD.new_bytes, 0),
  raw_bytes = raw_bytes - coalesce(OLD.raw_bytes, 0),
  named_bytes = named_bytes - coalesce(OLD.stored_bytes, 0)
WHERE id = OLD.run_id AND OLD.state = 'committed';
"""
_LAST = """
UPDATE runs SET (last_checkpoint_id, last_committed_step, last_committed_at) = (
  SELECT c.id, c.step, c.committed_at FROM checkpoints c
  WHERE c.run_id = {run} AND c.state = 'committed' ORDER BY c.sequence DESC LIMIT 1)
WHERE id = {run} AND {condition};
"""
_LAST_WITHOUT_OLD = _LAST.format(run="OLD.run_id", condition="last_checkpoint_id = OLD.id")
_LAST_WITH_NEW = _LAST.format(run="NEW.run_id", condition="NEW.state = 'committed'")
_COUNTED = ("run_id", "state", "sequence", "step", "committed_at", "new_bytes", "raw_bytes", "stored_bytes")
_ROW_TRIGGERS = {
    "insert": ("AFTER INSERT", "NEW.state = 'committed'", _ADD + _LAST_WITH_NEW),
    "update": (
        "AFTER UPDATE OF " + ", ".join(_COUNTED),
        "OLD.state = 'committed' OR NEW.state = 'committed'",
        _SUBTRACT + _ADD + _LAST_WITHOUT_OLD + _LAST_WITH_NEW,
    ),
    "delete": ("AFTER DELETE", "OLD.state = 'committed'", _SUBTRACT + _LAST_WITHOUT_OLD),
}
"""For SQLite, which has no others: event, condition and body."""

_COLUMNS = ", ".join(_COUNTED)
_ROWS = f"SELECT {{count}} AS count, id, {_COLUMNS} FROM {{table}} WHERE state = 'committed'"  # noqa: S608  (constants)
_GONE, _COME = _ROWS.format(count=-1, table="old_rows"), _ROWS.format(count=1, table="new_rows")
_STAYED, _STAYS = _ROWS.format(count=-1, table="new_rows"), _ROWS.format(count=1, table="old_rows")
_STATEMENT_TRIGGERS = {
    "insert": ("NEW TABLE AS new_rows", _COME),
    "update": (
        "OLD TABLE AS old_rows NEW TABLE AS new_rows",
        f"({_COME} EXCEPT ALL {_STAYS}) UNION ALL ({_GONE} EXCEPT ALL {_STAYED})",
    ),
    "delete": ("OLD TABLE AS old_rows", _GONE),
}
"""For PostgreSQL: what a statement did, and the committed rows that it made (counted 1) and unmade (-1)."""
# Two statements: the first waits for whoever holds the run, the second sees what that one committed.
_SUM_UP = """
DECLARE changed record;
BEGIN
  FOR changed IN
    SELECT run_id, sum(count) AS committed, sum(count * coalesce(new_bytes, 0)) AS stored_bytes,
      sum(count * coalesce(raw_bytes, 0)) AS raw_bytes, sum(count * coalesce(stored_bytes, 0)) AS named_bytes
    FROM ({rows}) AS counted GROUP BY run_id ORDER BY run_id
  LOOP
    UPDATE runs SET committed_checkpoints = committed_checkpoints + changed.committed,
      stored_bytes = stored_bytes + changed.stored_bytes,
      raw_bytes = raw_bytes + changed.raw_bytes,
      named_bytes = named_bytes + changed.named_bytes
    WHERE id = changed.run_id;
    {last}
  END LOOP;
  RETURN NULL;
END
"""


def upgrade() -> None:
    """Adds them. The sums are made once triggers and indexes hold off whoever writes meanwhile."""
    _create_sign_ins()
    _add_columns()
    _create_indexes()
    _create_triggers()
    _sum_up()
    _create_finding_checkpoints()


def downgrade() -> None:
    """Takes everything away again."""
    op.drop_table("finding_checkpoints")
    _drop_triggers()
    op.drop_index("ix_chunks_declared", "chunks")
    for name in (*_CHECKPOINT_INDEXES, *_PARTIAL_INDEXES):
        op.drop_index(name, "checkpoints")
    for name, (table, _) in _OTHER_INDEXES.items():
        op.drop_index(name, table)
    for column in _RUN_ORDERS:
        op.drop_index(f"ix_runs_{column}_id", "runs")
    for column in (*_RUN_COLUMNS, *_RUN_SUMS):
        op.drop_column("runs", column)
    for column in _SESSION_SUMS:
        op.drop_column("sessions", column)
    for column in ("save_requests", *_ATTEMPT_COLUMNS):
        op.drop_column("attempts", column)
    op.drop_table("sign_ins")


def _create_sign_ins() -> None:
    op.create_table(
        "sign_ins",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("token_id", sa.String(40), nullable=False),
        sa.Column("created_at", _BIG, nullable=False),
        sa.Column("expires_at", _BIG, nullable=False),
        sa.Column("last_used_at", _BIG, nullable=True),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name=op.f("fk_sign_ins_token_id_tokens")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sign_ins")),
        sa.UniqueConstraint("hash", name=op.f("uq_sign_ins_hash")),
    )
    op.create_index("ix_sign_ins_token_id", "sign_ins", ["token_id"])
    op.create_index("ix_sign_ins_expires_at", "sign_ins", ["expires_at"])


def _add_columns() -> None:
    op.add_column("runs", sa.Column("last_committed_step", _BIG, nullable=True))
    op.add_column("runs", sa.Column("last_committed_at", _BIG, nullable=True))
    op.add_column("runs", sa.Column("last_checkpoint_id", sa.String(40), nullable=True))
    for column in _RUN_SUMS:
        op.add_column("runs", sa.Column(column, _BIG, server_default="0", nullable=False))
    for column in _SESSION_SUMS:
        op.add_column("sessions", sa.Column(column, _BIG, server_default="0", nullable=False))
    op.add_column("attempts", sa.Column("save_requests", sa.Integer(), server_default="0", nullable=False))
    op.add_column("attempts", sa.Column("save_requested_at", _BIG, nullable=True))
    op.add_column("attempts", sa.Column("save_requested_by", sa.String(200), nullable=True))
    op.add_column("attempts", sa.Column("save_request_checkpoint_id", sa.String(40), nullable=True))


def _create_indexes() -> None:
    for column in _RUN_ORDERS:
        op.create_index(f"ix_runs_{column}_id", "runs", [column, "id"])
    for name, columns in _CHECKPOINT_INDEXES.items():
        op.create_index(name, "checkpoints", columns)
    for name, (columns, on_sqlite, on_postgresql) in _PARTIAL_INDEXES.items():
        op.create_index(
            name, "checkpoints", columns, sqlite_where=sa.text(on_sqlite), postgresql_where=sa.text(on_postgresql)
        )
    for name, (table, columns) in _OTHER_INDEXES.items():
        op.create_index(name, table, columns)
    declared = {"sqlite_where": sa.text(_DECLARED), "postgresql_where": sa.text(_DECLARED)}
    op.create_index("ix_chunks_declared", "chunks", ["verification", "state", "project_id", "size_bytes"], **declared)


def _create_finding_checkpoints() -> None:
    op.create_table(
        "finding_checkpoints",
        sa.Column("checkpoint_id", sa.String(40), nullable=False),
        sa.Column("finding_id", _BIG, autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(
            ["finding_id"],
            ["integrity_findings.id"],
            name=op.f("fk_finding_checkpoints_finding_id_integrity_findings"),
        ),
        sa.PrimaryKeyConstraint("checkpoint_id", "finding_id", name=op.f("pk_finding_checkpoints")),
    )
    # Only a list is taken apart, whatever else JSON may be.
    harmed = "json_each(CASE json_type(f.harmed) WHEN 'array' THEN f.harmed ELSE '[]' END) AS listed"
    if not _on_sqlite():
        lists = "CASE json_typeof(f.harmed) WHEN 'array' THEN f.harmed ELSE CAST('[]' AS json) END"
        harmed = f"LATERAL json_array_elements_text({lists}) AS listed(value)"
    op.execute(
        "INSERT INTO finding_checkpoints (checkpoint_id, finding_id)"  # noqa: S608  (the constants above)
        f" SELECT listed.value, f.id FROM integrity_findings f CROSS JOIN {harmed}"
        " UNION SELECT f.checkpoint_id, f.id FROM integrity_findings f WHERE f.kind <> 'chunk'"
    )


def _create_triggers() -> None:
    if _on_sqlite():
        for name, (event, condition, body) in _ROW_TRIGGERS.items():
            fires = f"{event} ON checkpoints FOR EACH ROW WHEN {condition}"
            op.execute(f"CREATE TRIGGER {_trigger(name)} {fires}\nBEGIN {body} END")
        return
    last = _LAST.format(run="changed.run_id", condition="true")
    for name, (tables, rows) in _STATEMENT_TRIGGERS.items():
        trigger, body = _trigger(name), _SUM_UP.format(rows=rows, last=last)
        op.execute(f"CREATE FUNCTION {trigger}() RETURNS trigger LANGUAGE plpgsql AS $body$ {body} $body$")
        op.execute(
            f"CREATE TRIGGER {trigger} AFTER {name} ON checkpoints REFERENCING {tables} FOR EACH STATEMENT"
            f" EXECUTE FUNCTION {trigger}()"
        )


def _drop_triggers() -> None:
    for name in _ROW_TRIGGERS:
        if _on_sqlite():
            op.execute(f"DROP TRIGGER {_trigger(name)}")
        else:
            op.execute(f"DROP TRIGGER {_trigger(name)} ON checkpoints")
            op.execute(f"DROP FUNCTION {_trigger(name)}()")


def _trigger(name: str) -> str:
    return f"checkpoints_sum_up_{name}"


def _on_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def _sum_up() -> None:
    op.execute(
        """
        UPDATE runs SET (committed_checkpoints, stored_bytes, raw_bytes, named_bytes) = (
          SELECT count(*), coalesce(sum(c.new_bytes), 0), coalesce(sum(c.raw_bytes), 0),
            coalesce(sum(c.stored_bytes), 0)
          FROM checkpoints c WHERE c.run_id = runs.id AND c.state = 'committed')
        """
    )
    op.execute(
        """
        UPDATE runs SET (last_checkpoint_id, last_committed_step, last_committed_at) = (
          SELECT c.id, c.step, c.committed_at FROM checkpoints c
          WHERE c.run_id = runs.id AND c.state = 'committed' ORDER BY c.sequence DESC LIMIT 1)
        """
    )
