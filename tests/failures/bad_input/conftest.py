"""A run with one committed checkpoint for each test; every test ends with the check that it is still whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import shardkeep as sk
from tests.failures.bad_input.kept_checkpoint import Kept
from tests.service_process import ServiceProcess

_numbers = itertools.count()


@pytest.fixture
def client(shared_service: ServiceProcess) -> Iterator[sk.Client]:
    made = sk.connect(shared_service.url, shared_service.token, retry_seconds=10)
    yield made
    made.service.close()


@pytest.fixture
def kept(shared_service: ServiceProcess, client: sk.Client) -> Iterator[Kept]:
    made = Kept.save(shared_service, client, f"bad-input/run-{next(_numbers)}")
    yield made
    made.assert_nothing_was_lost()
