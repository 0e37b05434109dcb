"""integrity and recovery

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Brings the schema to this revision."""


def downgrade() -> None:
    """Brings the schema back to the revision before."""
