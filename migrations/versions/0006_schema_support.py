"""which code may run on which revision, and room for the whole reason of a pin

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: None = None
depends_on: None = None
oldest_code: str = "0006"
"""The oldest revision whose code may run on this schema: earlier code does not know how to ask."""


def upgrade() -> None:
    """Brings the schema to this revision."""
    op.create_table(
        "schema_support",
        sa.Column("revision", sa.String(length=32), nullable=False),
        sa.Column("oldest_code", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_schema_support")),
    )
    with op.batch_alter_table("checkpoints", schema=None) as batch_op:
        batch_op.alter_column(
            "pin_reason", existing_type=sa.String(length=1000), type_=sa.String(length=2000), existing_nullable=True
        )


def downgrade() -> None:
    """Brings the schema back to the revision before."""
    op.execute("UPDATE checkpoints SET pin_reason = substr(pin_reason, 1, 1000) WHERE length(pin_reason) > 1000")
    with op.batch_alter_table("checkpoints", schema=None) as batch_op:
        batch_op.alter_column(
            "pin_reason", existing_type=sa.String(length=2000), type_=sa.String(length=1000), existing_nullable=True
        )
    op.drop_table("schema_support")
