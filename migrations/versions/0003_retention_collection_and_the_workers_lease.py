"""retention, collection and the worker's lease

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Brings the schema to this revision."""


def downgrade() -> None:
    """Brings the schema back to the revision before."""
