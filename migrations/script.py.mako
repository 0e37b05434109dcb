"""${message}

Revision ID: ${up_revision}
Revises: ${down_revision | comma,n}
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision: str = ${repr(up_revision)}
down_revision: str | None = ${repr(down_revision)}
branch_labels: None = None
depends_on: None = None
oldest_code: str | None = ${repr(down_revision)}
"""The oldest revision whose code may run on this schema: that of the last release, while this one only expands."""


def upgrade() -> None:
    """Brings the schema to this revision."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Brings the schema back to the revision before."""
    ${downgrades if downgrades else "pass"}
