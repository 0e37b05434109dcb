"""what the dashboard lists: sums of runs, kept by triggers; sign-ins; progress of sessions; requests to save now

A service of the revision before commits and deletes without knowing the sums, so the database keeps them itself. On
SQLite a later revision that makes `checkpoints` or `runs` anew (`batch_alter_table`) drops the triggers first and
creates them again.

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
    "ix_checkpoints_pinned": (["opened_at", "id"], "pinned = 1", "pinned"),
    "ix_checkpoints_quarantined": (["state", "project_id"], "quarantined = 1", "quarantined"),
}
"""Columns, and the condition on SQLite and on PostgreSQL."""
_OTHER_INDEXES = {
    "ix_checkpoint_tags_tag_checkpoint_id": ("checkpoint_tags", ["tag", "checkpoint_id"]),
    "ix_tokens_created_at_id": ("tokens", ["created_at", "id"]),
}

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
  WHERE c.run_id = {row}.run_id AND c.state = 'committed' ORDER BY c.sequence DESC LIMIT 1)
WHERE id = {row}.run_id;
"""
_COUNTED = ("run_id", "state", "sequence", "step", "committed_at", "new_bytes", "raw_bytes", "stored_bytes")
_EVENTS = {
    "insert": ("AFTER INSERT", "NEW.state = 'committed'", _ADD + _LAST.format(row="NEW")),
    "update": (
        "AFTER UPDATE OF " + ", ".join(_COUNTED),
        "OLD.state = 'committed' OR NEW.state = 'committed'",
        _SUBTRACT + _ADD + _LAST.format(row="OLD") + _LAST.format(row="NEW"),
    ),
    "delete": ("AFTER DELETE", "OLD.state = 'committed'", _SUBTRACT + _LAST.format(row="OLD")),
}


def upgrade() -> None:
    """Adds them. The sums are made once triggers and indexes hold off whoever writes meanwhile."""
    _create_sign_ins()
    _add_columns()
    _create_indexes()
    for name, (event, condition, body) in _EVENTS.items():
        _create_trigger(name, event=event, condition=condition, body=body)
    _sum_up()


def downgrade() -> None:
    """Takes everything away again."""
    for name in _EVENTS:
        _drop_trigger(name)
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


def _create_trigger(name: str, *, event: str, condition: str, body: str) -> None:
    trigger = f"checkpoints_sum_up_{name}"
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"CREATE TRIGGER {trigger} {event} ON checkpoints FOR EACH ROW WHEN {condition}\nBEGIN {body} END")
        return
    op.execute(
        f"CREATE FUNCTION {trigger}() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN {body} RETURN NULL; END $body$"
    )
    op.execute(
        f"CREATE TRIGGER {trigger} {event} ON checkpoints FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION {trigger}()"
    )


def _drop_trigger(name: str) -> None:
    trigger = f"checkpoints_sum_up_{name}"
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"DROP TRIGGER {trigger}")
        return
    op.execute(f"DROP TRIGGER {trigger} ON checkpoints")
    op.execute(f"DROP FUNCTION {trigger}()")


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
