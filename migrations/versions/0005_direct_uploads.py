"""direct uploads: chunks may be pending

`pending` is a new value of `chunks.state`, which has its index with the moment of the claim; no table changes.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Nothing to alter: see above."""


def downgrade() -> None:
    """What was being uploaded counts as lost, which every revision knows: whoever needs it sends it again."""
    op.execute("UPDATE chunks SET state = 'lost' WHERE state = 'pending'")
