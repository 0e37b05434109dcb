"""Direct uploads negotiated at two replicas at once: one row a chunk, whoever gave out its target."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import shardkeep as sk
from shardkeep.store.plain_saves import PlainSaver
from tests.faulty_proxy import FaultyProxy
from tests.integration.client.direct_service import PUT, State, assert_loads, many, small_chunks
from tests.servers.cluster import Cluster
from tests.servers.postgres import Postgres
from tests.servers.seaweedfs import S3Server


@pytest.fixture(autouse=True)
def _many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch)


@pytest.fixture(scope="module")
def store(seaweedfs: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(seaweedfs.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def clients(
    seaweedfs: S3Server, postgres: Postgres, store: FaultyProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[sk.Client]]:
    """One at each replica."""
    env = {
        **seaweedfs.environment(seaweedfs.new_bucket()),
        "SHARDKEEP_SERVICE_S3_PUBLIC_ENDPOINT_URL": store.url,
    }
    with Cluster(tmp_path_factory.mktemp("direct"), postgres.new_database(), env=env) as cluster:
        made = [sk.connect(replica.url, cluster.token, codec="raw", retry_seconds=30) for replica in cluster.replicas]
        yield made
        for client in made:
            client.service.close()


def save_rank(client: sk.Client, rank: int, state: State) -> sk.Checkpoint:
    attempt = client.run("replicas/world").begin_attempt(sk.World(rank, 2, "ef" * 16))
    attempt.decide_resume()
    return PlainSaver(attempt).save(1, state, {}).wait(60)


def test_ranks_at_two_replicas_send_a_common_chunk_to_one_key(clients: list[sk.Client], store: FaultyProxy) -> None:
    common = many(1, 4)
    states = [{f"{name}-of-{rank}": value.copy() for name, value in common.items()} for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(save_rank, clients, range(2), states)
    assert first.id == second.id
    keys = {item.path.partition("?")[0] for item in store.exchanges if item.method == "PUT" and "/chunks/" in item.path}
    assert len(keys) == 4
    for client in clients:
        assert_loads(client.checkpoint(first.id), {**states[0], **states[1]})


def test_runs_at_two_replicas_that_send_the_same_chunks_at_once_both_commit(
    clients: list[sk.Client], store: FaultyProxy
) -> None:
    state, before = many(2, 6), store.count(PUT)
    handles = [client.run(f"replicas/twin-{number}").save(1, state) for number, client in enumerate(clients)]
    checkpoints = [handle.wait(60) for handle in handles]
    for checkpoint, client in zip(checkpoints, reversed(clients), strict=True):
        assert_loads(client.checkpoint(checkpoint.id), state)
    assert store.count(PUT) > before
