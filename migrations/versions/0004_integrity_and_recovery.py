"""integrity and recovery

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: None = None
depends_on: None = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Adds findings and facts, and lets the outbox name anything that the bucket must know, as it does from now on."""
    _create_catalogue_facts()
    _create_integrity_findings()
    with op.batch_alter_table("outbox") as outbox:
        outbox.add_column(sa.Column("subject_id", sa.String(40), server_default="", nullable=False))
        outbox.alter_column("checkpoint_id", existing_type=sa.String(40), nullable=True)
    op.execute("UPDATE outbox SET subject_id = checkpoint_id")
    op.add_column("checkpoints", sa.Column("scrubbed_at", _BIG, server_default="0", nullable=False))
    op.create_index("ix_checkpoints_scrubbed_at", "checkpoints", ["scrubbed_at"])
    op.create_index("ix_chunks_verification_verified_at", "chunks", ["verification", "verified_at"])
    _record_what_no_record_says_yet()


def downgrade() -> None:
    """Drops them again; what waits to be written and is no commit is forgotten."""
    op.drop_index("ix_chunks_verification_verified_at", "chunks")
    op.drop_index("ix_checkpoints_scrubbed_at", "checkpoints")
    op.drop_column("checkpoints", "scrubbed_at")
    op.execute("DELETE FROM outbox WHERE kind <> 'commit_record'")
    op.execute("UPDATE outbox SET checkpoint_id = subject_id")
    with op.batch_alter_table("outbox") as outbox:
        outbox.drop_column("subject_id")
        outbox.alter_column("checkpoint_id", existing_type=sa.String(40), nullable=False)
    op.drop_table("integrity_findings")
    op.drop_table("catalogue_facts")


def _create_catalogue_facts() -> None:
    op.create_table(
        "catalogue_facts",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.Column("set_at", _BIG, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_catalogue_facts")),
    )


def _create_integrity_findings() -> None:
    op.create_table(
        "integrity_findings",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("project_id", sa.String(40), nullable=False),
        sa.Column("checkpoint_id", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("damage", sa.String(16), nullable=False),
        sa.Column("object_key", sa.String(300), nullable=False),
        sa.Column("digest", sa.String(64), nullable=True),
        sa.Column("detail", sa.String(1000), nullable=False),
        sa.Column("harmed", sa.JSON(), nullable=False),
        sa.Column("found_at", _BIG, nullable=False),
        sa.Column("resolved_at", _BIG, nullable=True),
        sa.Column("resolution", sa.String(1000), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_integrity_findings")),
    )
    op.create_index("ix_integrity_findings_resolved_at_id", "integrity_findings", ["resolved_at", "id"])
    op.create_index("ix_integrity_findings_object_key", "integrity_findings", ["object_key"])


def _record_what_no_record_says_yet() -> None:
    """Asks for records of what only the database knew so far: names, attempts, pins and deletions."""
    sources = (
        ("project_record", "created_at", "projects"),
        ("run_record", "created_at", "runs"),
        ("attempt_record", "created_at", "attempts"),
        ("commit_record", "opened_at", "checkpoints WHERE state IN ('committed', 'deleted')"),
    )
    for kind, at, table in sources:
        op.execute(
            "INSERT INTO outbox (kind, subject_id, created_at)"  # noqa: S608  (the constants above)
            f" SELECT '{kind}', id, {at} FROM {table}"
        )
