"""A service in this process for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalService]:
    with LocalService(tmp_path / "service") as service:
        yield service


@pytest.fixture
def training(local: LocalService) -> Training:
    return Training(local)
