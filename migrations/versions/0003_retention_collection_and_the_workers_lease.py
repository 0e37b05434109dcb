"""retention, collection and the worker's lease

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: None = None
depends_on: None = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ID = sa.String(40)
_NAME = sa.String(128)


def upgrade() -> None:
    """Adds the tables of retention, collection and the worker, and what deletion notes on projects, runs and below."""
    _create_worker_leases()
    _create_retention_policies()
    _create_checkpoint_tags()
    _create_collection()
    for table in ("projects", "runs"):
        op.add_column(table, sa.Column("version", sa.Integer(), server_default="1", nullable=False))
        op.add_column(table, sa.Column("deleted_at", _BIG, nullable=True))
        op.add_column(table, sa.Column("deleted_name", _NAME, nullable=True))
    op.add_column("runs", sa.Column("deleted_with", _ID, nullable=True))
    op.add_column("checkpoints", sa.Column("deleted_with", _ID, nullable=True))
    op.add_column("checkpoints", sa.Column("deletion_reason", sa.String(1000), nullable=True))
    op.add_column("checkpoints", sa.Column("purged_at", _BIG, nullable=True))
    op.add_column("chunks", sa.Column("condemned_at", _BIG, nullable=True))


def downgrade() -> None:
    """Drops them again; what was deleted stays so, and its names stay as deletion left them."""
    op.drop_column("chunks", "condemned_at")
    for column in ("purged_at", "deletion_reason", "deleted_with"):
        op.drop_column("checkpoints", column)
    op.drop_column("runs", "deleted_with")
    for table in ("runs", "projects"):
        for column in ("deleted_name", "deleted_at", "version"):
            op.drop_column(table, column)
    for table in (
        "stray_sightings",
        "collection_progress",
        "checkpoint_tags",
        "retention_policies",
        "worker_leases",
    ):
        op.drop_table(table)


def _create_worker_leases() -> None:
    op.create_table(
        "worker_leases",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(120), nullable=True),
        sa.Column("until", _BIG, nullable=False),
        sa.Column("due_at", _BIG, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_worker_leases")),
    )


def _create_retention_policies() -> None:
    op.create_table(
        "retention_policies",
        sa.Column("subject_id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=True),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("set_at", _BIG, nullable=False),
        sa.Column("set_by", sa.String(200), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_retention_policies_project_id_projects")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_retention_policies_run_id_runs")),
        sa.PrimaryKeyConstraint("subject_id", name=op.f("pk_retention_policies")),
    )
    op.create_index(op.f("ix_retention_policies_project_id"), "retention_policies", ["project_id"])


def _create_checkpoint_tags() -> None:
    op.create_table(
        "checkpoint_tags",
        sa.Column("checkpoint_id", _ID, nullable=False),
        sa.Column("tag", _NAME, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("set_at", _BIG, nullable=False),
        sa.ForeignKeyConstraint(
            ["checkpoint_id"], ["checkpoints.id"], name=op.f("fk_checkpoint_tags_checkpoint_id_checkpoints")
        ),
        sa.PrimaryKeyConstraint("checkpoint_id", "tag", name=op.f("pk_checkpoint_tags")),
    )
    op.create_index("ix_checkpoint_tags_run_id_tag", "checkpoint_tags", ["run_id", "tag"])


def _create_collection() -> None:
    op.create_table(
        "collection_progress",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("passes", sa.Integer(), nullable=False),
        sa.Column("started_at", _BIG, nullable=True),
        sa.Column("ended_at", _BIG, nullable=True),
        sa.Column("place", sa.JSON(), nullable=False),
        sa.Column("tally", sa.JSON(), nullable=False),
        sa.Column("stopped_at", _BIG, nullable=True),
        sa.Column("stopped_because", sa.String(2000), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_collection_progress")),
    )
    op.create_table(
        "stray_sightings",
        sa.Column("object_key", sa.String(300), nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("first_seen_at", _BIG, nullable=False),
        sa.Column("last_pass", sa.Integer(), nullable=False),
        sa.Column("size_bytes", _BIG, nullable=False),
        sa.PrimaryKeyConstraint("object_key", name=op.f("pk_stray_sightings")),
    )
    op.create_index("ix_stray_sightings_project_id_object_key", "stray_sightings", ["project_id", "object_key"])
