"""What S3 stores do to streamed saves, by a proxy in front of a real one: never a lost or half checkpoint."""

from __future__ import annotations

import itertools
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import ShardkeepError
from shardkeep.format.chunks import chunk_ref
from shardkeep.protocol import routes
from tests.failures.storage.kept_states import CHUNK_BYTES, KeptStates
from tests.faulty_proxy import DROPPED, Exchange, FaultyProxy, Reply
from tests.integration.client.direct_service import small_chunks
from tests.integration.service.process_client import ProcessClient
from tests.servers.cluster import Cluster
from tests.servers.postgres import Postgres
from tests.servers.s3_answers import FOREVER, s3_error, slow_down, stored_whatever_it_says
from tests.servers.seaweedfs import S3Server
from tests.service_process import ServiceProcess
from tests.unit.service.training import Training
from tests.waiting import wait_until

pytestmark = pytest.mark.s3
_numbers = itertools.count()
STREAMED = {"SHARDKEEP_SERVICE_DIRECT": "never", "SHARDKEEP_SERVICE_S3_READ_TIMEOUT_SECONDS": "2"}


@dataclass
class ProxiedService:
    process: ServiceProcess
    store: FaultyProxy
    bucket: str
    server: S3Server


@pytest.fixture(autouse=True)
def _many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, CHUNK_BYTES)


@pytest.fixture(scope="module")
def shared(seaweedfs: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedService]:
    with FaultyProxy(seaweedfs.port) as store:
        bucket = seaweedfs.new_bucket()
        env = {**seaweedfs.environment(bucket, endpoint_url=store.url), **STREAMED}
        with ServiceProcess(tmp_path_factory.mktemp("proxied") / "service", env=env) as process:
            yield ProxiedService(process, store, bucket, seaweedfs)


@pytest.fixture
def service(shared: ProxiedService) -> ProxiedService:
    shared.store.forget()
    return shared


@pytest.fixture
def kept(service: ProxiedService) -> Iterator[KeptStates]:
    with sk.connect(service.process.url, service.process.token, retry_seconds=60, codec="raw") as client:
        states = KeptStates(client, f"storage/s3-{next(_numbers)}")
        states.save(1)
        yield states
        service.store.forget()
        states.check()


def stall(seconds: float) -> Callable[[Exchange], Reply]:
    def wait(_: Exchange) -> Reply:
        time.sleep(seconds)
        return Reply()

    return wait


@pytest.mark.parametrize(
    "answer",
    [
        slow_down(),
        slow_down("1"),
        s3_error(500, "InternalError"),
        s3_error(400, "BadDigest"),
        s3_error(409, "ConditionalRequestConflict"),
        DROPPED,
    ],
    ids=["slow down", "slow down for 1 s", "500", "refused checksum", "conflict", "no answer"],
)
@pytest.mark.parametrize("done", [True, False])
def test_puts_that_fail_now_and_then_lose_nothing(
    service: ProxiedService, kept: KeptStates, answer: Reply, done: bool
) -> None:
    for step in (2, 3):
        service.store.fail("^PUT .*/chunks/", answer, times=2, forwards=done)
        service.store.fail("^PUT .*/manifests/", answer, times=1, forwards=done)
        service.store.fail("^PUT .*/indexes/", answer, times=1, forwards=done)
        kept.save(step)


def test_a_store_that_stalls_for_longer_than_the_service_waits_is_asked_again(
    service: ProxiedService, kept: KeptStates
) -> None:
    service.store.fail("^PUT .*/chunks/", stall(4), times=2)
    service.store.fail("^PUT .*/manifests/", stall(4), times=1)
    kept.save(2)


def test_answers_that_end_early_are_read_again(service: ProxiedService, kept: KeptStates) -> None:
    rng = random.Random(3)
    kept.save(2)

    def cut(exchange: Exchange) -> Reply:
        return Reply(cut_after=rng.randrange(max(1, len(exchange.answer))))

    service.store.fail("^GET /[^?]+$", cut, times=12)
    kept.check()


@pytest.mark.parametrize(
    "answer", [s3_error(507, "InsufficientStorage"), s3_error(403, "QuotaExceeded"), s3_error(507, "XMinioStorageFull")]
)
def test_a_full_bucket_fails_the_save_and_says_so(service: ProxiedService, kept: KeptStates, answer: Reply) -> None:
    service.store.fail("^PUT .*/chunks/", answer, times=FOREVER, forwards=False)
    with pytest.raises(ShardkeepError, match="no space left"):
        kept.save(2)
    service.store.forget()
    kept.save(3)


def test_a_permission_that_is_taken_away_is_named_in_the_log_with_bucket_and_action(
    service: ProxiedService, kept: KeptStates
) -> None:
    service.store.fail("^PUT .*/chunks/", s3_error(403, "AccessDenied"), times=FOREVER, forwards=False)
    with (
        sk.connect(service.process.url, service.process.token, retry_seconds=2, codec="raw") as client,
        pytest.raises(ShardkeepError, match="refuses this service"),
    ):
        client.run("storage/refused").save(1, kept.state(2)).wait(60)
    wait_until(lambda: f"lack s3:PutObject on bucket {service.bucket}" in service.process.log)


def test_E143_a_save_whose_every_put_is_done_twice_is_whole(service: ProxiedService, kept: KeptStates) -> None:
    done: set[str] = set()

    def lose_the_first_answer(exchange: Exchange) -> Reply:
        first = exchange.path not in done
        done.add(exchange.path)
        return DROPPED if first else Reply()

    service.store.fail("^PUT .*/(chunks|manifests|indexes)/", lose_the_first_answer, times=FOREVER)
    kept.save(2)
    assert done


def test_E211_at_a_store_that_ignores_conditions_two_writers_of_a_step_make_one_checkpoint(
    seaweedfs: S3Server, tmp_path: Path
) -> None:
    with FaultyProxy(seaweedfs.port) as store:
        store.fail("^PUT ", stored_whatever_it_says(seaweedfs), times=FOREVER, forwards=False)
        env = {**seaweedfs.environment(seaweedfs.new_bucket(), endpoint_url=store.url), **STREAMED}
        with ServiceProcess(tmp_path / "service", env=env) as process:
            with sk.connect(process.url, process.token, retry_seconds=20, codec="raw") as client:
                _two_writers_commit_one(client)
            assert "replaces an object" in process.log


def _two_writers_commit_one(client: sk.Client) -> None:
    """Two attempts at once: the later fences the earlier, so the step is committed once, and that one is whole."""
    barrier = threading.Barrier(2)

    def write(writer: int) -> str | None:
        run = client.run("storage/two-writers")
        state = {"w": np.full(50_000, writer, np.uint8)}
        barrier.wait(30)
        try:
            return run.save(7, state, fresh=True).wait(60).id
        except ShardkeepError:
            return None

    with ThreadPoolExecutor(2) as pool:
        committed = [found for found in pool.map(write, range(2)) if found is not None]
    latest = client.run("storage/two-writers").latest()
    assert latest is not None
    assert latest.id in committed
    for checkpoint_id in committed:
        target = {"w": np.zeros(50_000, np.uint8)}
        client.checkpoint(checkpoint_id).load_into(target)
        assert target["w"].min() == target["w"].max()


def test_E146_a_chunk_sent_in_pieces_of_1_to_899_bytes_is_stored_whole_and_only_whole(service: ProxiedService) -> None:
    rng = random.Random(18)
    training = Training(ProcessClient(service.process), "storage", "pieces")
    checkpoint = training.open_all(training.start(1), save=0, step=1, world_size=1)
    for sent in (18_810, 18_809):
        data = rng.randbytes(18_810)
        answer = _send_in_pieces(service.process, checkpoint, data, sent, rng)
        assert (b" 201 " in answer or b" 200 " in answer) is (sent == len(data)), answer
        digest = chunk_ref([data]).digest
        stored = [size for key, size in service.server.objects(service.bucket).items() if digest in key]
        assert stored == ([18_810] if sent == len(data) else [])


def _send_in_pieces(process: ServiceProcess, checkpoint: str, data: bytes, sent: int, rng: random.Random) -> bytes:
    path = routes.path(routes.CHUNK, checkpoint=checkpoint, digest=chunk_ref([data]).digest)
    head = (
        f"PUT {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {process.token}\r\nconnection: close\r\n"
        f"content-length: {len(data)}\r\n{routes.CRC64_HEADER}: {chunk_ref([data]).crc64:016x}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", process.port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(head.encode())
        done = 0
        while done < sent:
            piece = data[done : min(sent, done + rng.randint(1, 899))]
            connection.sendall(piece)
            done += len(piece)
        if sent < len(data):
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while received := connection.recv(65536):
            answer += received
        return answer


@pytest.mark.slow
def test_E154_what_one_replica_commits_or_deletes_the_other_knows_at_once(
    seaweedfs: S3Server, postgres: Postgres, tmp_path: Path
) -> None:
    env = seaweedfs.environment(seaweedfs.new_bucket())
    cluster = Cluster(tmp_path, postgres.new_database(), env=env)
    try:
        cluster.start(worker=False)
        first, second = (sk.connect(replica.url, cluster.token, retry_seconds=20) for replica in cluster.replicas)
        with first, second:
            kept = KeptStates(first, "storage/two-replicas")
            kept.save(4)
            for step in range(5, 10):
                saved = kept.save(step)
                latest = second.run("storage/two-replicas").latest()
                assert latest is not None
                assert latest.id == saved.id
            saved.delete()
            listed = second.run("storage/two-replicas").checkpoints(state="committed")
            assert {checkpoint.step for checkpoint in listed} == {4, 5, 6, 7, 8}
    finally:
        cluster.stop()
