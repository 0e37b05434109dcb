"""direct uploads

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Brings the schema to this revision."""


def downgrade() -> None:
    """Brings the schema back to the revision before."""
