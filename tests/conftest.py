"""Fixtures for the service process. Everything else is built by the tests that need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.service_process import ServiceProcess

# No deadlines: on a busy machine a slow example says nothing about the code.
settings.register_profile("shardkeep", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shardkeep")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service of this test alone, stopped at its end."""
    with ServiceProcess(tmp_path / "service") as process:
        yield process


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service that the tests of one module share; each uses projects of its own."""
    with ServiceProcess(tmp_path_factory.mktemp("shared") / "service") as process:
        yield process
