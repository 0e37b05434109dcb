"""Launches that the tests of a module share: ranks without a service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distributed.launcher import RankPools


@pytest.fixture(scope="module")
def rank_pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPools]:
    """Launches by world size, which know no service."""
    started = RankPools(directory=Path(tmp_path_factory.mktemp("zero")), env={})
    yield started
    started.close()
