"""A bucket that outlives its databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.service.catalogue.lives import Lives
from tests.unit.service.databases import SQLITE


@pytest.fixture
def lives(tmp_path: Path, database_kind: str, request: pytest.FixtureRequest) -> Iterator[Lives]:
    databases = None if database_kind == SQLITE else request.getfixturevalue("migrated_databases")
    made = Lives(tmp_path, databases)
    yield made
    made.close()
