"""A connected client and a fresh run for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

import shardkeep as sk
from shardkeep.store.run import Run
from tests.service_process import ServiceProcess

_numbers = itertools.count()


@pytest.fixture
def client(shared_service: ServiceProcess) -> Iterator[sk.Client]:
    connected = sk.connect(shared_service.url, shared_service.token, retry_seconds=20)
    yield connected
    connected.service.close()


@pytest.fixture
def new_run(client: sk.Client) -> Callable[[], Run]:
    return lambda: client.run(f"client-tests/run-{next(_numbers)}")


@pytest.fixture
def run(new_run: Callable[[], Run]) -> Run:
    return new_run()
