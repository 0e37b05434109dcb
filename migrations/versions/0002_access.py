"""access: what tokens are bound to, quotas, what projects use, the audit log

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: None = None
depends_on: None = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Adds the tables and columns, and counts what projects use already."""
    with op.batch_alter_table("tokens") as tokens:
        tokens.add_column(sa.Column("run_id", sa.String(40), nullable=True))
        tokens.add_column(sa.Column("parent_id", sa.String(40), nullable=True))
        tokens.create_foreign_key(op.f("fk_tokens_parent_id_tokens"), "tokens", ["parent_id"], ["id"])
        tokens.create_index(op.f("ix_tokens_parent_id"), ["parent_id"])
    op.create_table(
        "token_projects",
        sa.Column("token_id", sa.String(40), nullable=False),
        sa.Column("project_id", sa.String(40), nullable=False),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name=op.f("fk_token_projects_token_id_tokens")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_token_projects_project_id_projects")),
        sa.PrimaryKeyConstraint("token_id", "project_id", name=op.f("pk_token_projects")),
    )
    op.create_index(op.f("ix_token_projects_project_id"), "token_projects", ["project_id"])
    op.create_table(
        "project_quotas",
        sa.Column("project_id", sa.String(40), nullable=False),
        sa.Column("max_bytes", _BIG, nullable=True),
        sa.Column("max_checkpoints", _BIG, nullable=True),
        sa.Column("set_at", _BIG, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_project_quotas_project_id_projects")),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_project_quotas")),
    )
    op.create_table(
        "project_usage",
        sa.Column("project_id", sa.String(40), nullable=False),
        sa.Column("slot", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stored_bytes", _BIG, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_project_usage_project_id_projects")),
        sa.PrimaryKeyConstraint("project_id", "slot", name=op.f("pk_project_usage")),
    )
    op.create_table(
        "chunk_proofs",
        sa.Column("checkpoint_id", sa.String(40), nullable=False),
        sa.Column("chunk_id", _BIG, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("checkpoint_id", "chunk_id", name=op.f("pk_chunk_proofs")),
    )
    _create_audit_log()
    op.execute(
        "INSERT INTO token_projects (token_id, project_id)"
        " SELECT id, project_id FROM tokens WHERE project_id IS NOT NULL"
    )
    op.execute(
        "INSERT INTO project_usage (project_id, slot, stored_bytes)"
        " SELECT project_id, 0, SUM(size_bytes) FROM chunks GROUP BY project_id"
    )


def downgrade() -> None:
    """Drops them again. No token may do more for it: what the old schema cannot say is narrowed or revoked."""
    op.execute("UPDATE tokens SET revoked_at = created_at WHERE run_id IS NOT NULL OR scope = 'metrics'")
    op.execute("UPDATE tokens SET scope = 'write' WHERE scope = 'delete'")
    for table in ("audit_log", "chunk_proofs", "project_usage", "project_quotas", "token_projects"):
        op.drop_table(table)
    with op.batch_alter_table("tokens") as tokens:
        tokens.drop_index(op.f("ix_tokens_parent_id"))
        tokens.drop_constraint(op.f("fk_tokens_parent_id_tokens"), type_="foreignkey")
        tokens.drop_column("parent_id")
        tokens.drop_column("run_id")


def _create_audit_log() -> None:
    op.create_table(
        "audit_log",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("at", _BIG, nullable=False),
        sa.Column("actor", sa.String(64), nullable=False),
        sa.Column("actor_name", sa.String(200), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("target", sa.String(400), nullable=False),
        sa.Column("project_id", sa.String(40), nullable=True),
        sa.Column("request_id", sa.String(64), nullable=True),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_log_at", "audit_log", ["at"])
    for column in ("project_id", "actor", "action"):
        op.create_index(f"ix_audit_log_{column}_id", "audit_log", [column, "id"])
