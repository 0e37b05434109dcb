"""Services whose database can be lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.recovery.plants import ClusterPlant, EmbeddedPlant, Plant


@pytest.fixture(params=["embedded", "cluster"])
def plant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Plant]:
    made: Plant
    if request.param == "embedded":
        made = EmbeddedPlant(tmp_path)
    else:
        postgres, seaweedfs = request.getfixturevalue("postgres"), request.getfixturevalue("seaweedfs")
        made = ClusterPlant(tmp_path / "cluster", postgres, seaweedfs)
    try:
        yield made
    finally:
        made.stop()
