"""A connected client for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shardkeep as sk
from tests.service_process import ServiceProcess


@pytest.fixture
def client(shared_service: ServiceProcess) -> Iterator[sk.Client]:
    made = sk.connect(shared_service.url, shared_service.token, retry_seconds=20)
    yield made
    made.service.close()
