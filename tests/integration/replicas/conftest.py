"""Two real replicas and a worker over one PostgreSQL and one directory of objects, and the same run through each."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.integration.service.process_client import ProcessClient
from tests.servers.cluster import Cluster
from tests.servers.postgres import Postgres
from tests.unit.service.training import Training

QUICK = {
    "SHARDKEEP_SERVICE_VALIDATION_LEASE_SECONDS": "1.5",
    "SHARDKEEP_SERVICE_WORKER_LEASE_SECONDS": "3",
    "SHARDKEEP_SERVICE_HOUSEKEEPING_SECONDS": "0.5",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[Cluster]:
    """Shared by a module; a test that kills a replica starts it again."""
    with Cluster(tmp_path_factory.mktemp("replicas"), postgres.new_database(), env=QUICK) as running:
        yield running


@pytest.fixture
def both(cluster: Cluster) -> list[Training]:
    """A new run, once through each replica."""
    run = f"run-{secrets.token_hex(4)}"
    return [Training(ProcessClient(replica, token=cluster.token), run=run) for replica in cluster.replicas]
