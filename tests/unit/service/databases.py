"""Tests that run on both databases: what SQLite's single writer hides, PostgreSQL shows."""

from __future__ import annotations

import pytest

SQLITE = "sqlite"
POSTGRESQL = "postgresql"

BOTH_DATABASES = pytest.mark.parametrize("database_kind", [SQLITE, POSTGRESQL], indirect=True)
"""`pytestmark = BOTH_DATABASES` in a module whose tests all use `local`, `training`, `database` or `database_url`."""
