"""Launches that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distributed.launcher import RankPools
from tests.service_process import ServiceProcess


@pytest.fixture(scope="module")
def pools(shared_service: ServiceProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPools]:
    """Launches by world size, connected to the shared service."""
    started = RankPools(directory=Path(tmp_path_factory.mktemp("ranks")), env=shared_service.environment())
    yield started
    started.close()
