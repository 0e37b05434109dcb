"""Chunks that bypass the service: sent to and fetched from a real SeaweedFS by signed URLs."""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import shardkeep as sk
from shardkeep.errors import IntegrityError, SaveFailed
from shardkeep.format.chunks import chunk_ref
from shardkeep.format.segments import ChunkRef
from shardkeep.store.plain_saves import PlainSaver
from shardkeep.store.run import Run
from shardkeep.uploader import sending
from tests.faulty_proxy import Exchange, Reply
from tests.integration.client.direct_service import (
    GET,
    MANIFEST,
    NEGOTIATE,
    PUT,
    READ,
    READ_TARGETS,
    STREAMED,
    DirectService,
    assert_loads,
    direct_service,
    many,
    noise,
    small_chunks,
)
from tests.servers.seaweedfs import S3Server
from tests.service_process import closed_port
from tests.waiting import wait_until

pytestmark = pytest.mark.s3

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch)


@pytest.fixture(scope="module")
def shared(seaweedfs: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectService]:
    with direct_service(seaweedfs, tmp_path_factory.mktemp("direct")) as service:
        yield service


@pytest.fixture
def direct(shared: DirectService) -> DirectService:
    """The shared service, with nothing counted and no fault left of the test before."""
    for proxy in (shared.front, shared.store):
        proxy.forget()
    return shared


@pytest.fixture
def new_run(direct: DirectService) -> Iterator[Callable[[], Run]]:
    with direct.connect() as client:
        yield lambda: client.run(f"direct/run-{next(_numbers)}")


def test_a_save_and_a_load_bypass_the_service_and_are_bit_equal(
    direct: DirectService, new_run: Callable[[], Run]
) -> None:
    state = many(1, 8)
    checkpoint = new_run().save(1, state).wait(60)
    assert direct.store.count(PUT) == 8
    assert direct.front.count(STREAMED) == 0
    assert_loads(checkpoint, state)
    assert direct.store.count(GET) > 0
    assert direct.front.count(READ) == 0
    assert checkpoint.info.new_bytes == sum(value.nbytes for value in state.values())


def test_offers_gather_while_the_senders_have_enough_to_do(
    direct: DirectService, new_run: Callable[[], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed, all_hashed = itertools.count(1), threading.Event()

    def count_hashed(parts: Sequence[memoryview]) -> ChunkRef:
        if next(hashed) == 48:
            all_hashed.set()
        return chunk_ref(parts)

    def hold(_: Exchange) -> None:
        all_hashed.wait(60)

    monkeypatch.setattr(sending, "chunk_ref", count_hashed)
    direct.store.tamper(PUT, hold, times=1000)
    new_run().save(1, many(2, 48)).wait(60)
    assert direct.store.count(PUT) == 48
    assert direct.front.count(NEGOTIATE) <= 16


def test_what_the_store_has_is_not_sent_again(direct: DirectService, new_run: Callable[[], Run]) -> None:
    run, state = new_run(), many(3, 6)
    run.save(1, state).wait(60)
    state["w0"] = noise(99, state["w0"].nbytes)
    second = run.save(2, state).wait(60)
    assert direct.store.count(PUT) == 7
    assert_loads(second, state)


def test_only_the_signed_headers_and_never_the_token_go_to_the_store(
    direct: DirectService, new_run: Callable[[], Run]
) -> None:
    state = many(4, 3)
    assert_loads(new_run().save(1, state).wait(60), state)
    known = {"host", "accept-encoding", "user-agent", "content-length", "range", "if-range"}
    for exchange in direct.store.exchanges:
        signed = re.search(r"X-Amz-SignedHeaders=([^&]*)", exchange.path)
        assert signed is not None
        allowed = known | set(signed[1].lower().replace("%3b", ";").split(";"))
        assert set(exchange.headers) <= allowed, exchange.headers
        assert "authorization" not in exchange.headers
        assert direct.process.token not in str(exchange.headers) + exchange.path
    [put, *_] = [item for item in direct.store.exchanges if item.method == "PUT"]
    assert put.headers["if-none-match"] == "*"
    assert "x-amz-checksum-crc64nvme" in put.headers


def test_connections_to_the_store_are_kept_alive(direct: DirectService, new_run: Callable[[], Run]) -> None:
    before = direct.store.connections
    new_run().save(1, many(5, 24)).wait(60)
    assert direct.store.count(PUT) == 24
    assert direct.store.connections - before <= 4


def test_a_wrong_body_is_refused_by_the_store_and_sent_again(direct: DirectService, new_run: Callable[[], Run]) -> None:
    def flip(exchange: Exchange) -> None:
        exchange.body = bytes([exchange.body[0] ^ 1]) + exchange.body[1:]

    direct.store.tamper(PUT, flip)
    state = many(6, 4)
    checkpoint = new_run().save(1, state).wait(60)
    assert [item.status for item in direct.store.exchanges if item.method == "PUT"].count(400) == 1
    assert_loads(checkpoint, state)


def test_a_body_that_is_always_wrong_fails_the_save_and_names_the_stores_code(
    direct: DirectService, new_run: Callable[[], Run]
) -> None:
    def flip(exchange: Exchange) -> None:
        exchange.body = bytes([exchange.body[0] ^ 1]) + exchange.body[1:]

    direct.store.tamper(PUT, flip, times=1000)
    run = new_run()
    with pytest.raises(SaveFailed, match="BadDigest"):
        run.save(1, many(7, 1)).wait(60)
    assert run.latest() is None


def test_an_answer_that_is_lost_is_a_chunk_that_is_there(direct: DirectService, new_run: Callable[[], Run]) -> None:
    direct.store.fail(PUT, Reply(nothing=True), times=3)
    state = many(8, 5)
    checkpoint = new_run().save(1, state).wait(60)
    statuses = [item.status for item in direct.store.exchanges if item.method == "PUT"]
    assert statuses.count(412) == 3
    assert_loads(checkpoint, state)


def test_objects_deleted_before_validation_are_sent_again_under_new_keys(
    direct: DirectService, new_run: Callable[[], Run], caplog: pytest.LogCaptureFixture
) -> None:
    before = set(direct.chunk_keys())

    def lose_two(_: Exchange) -> None:
        for key in sorted(set(direct.chunk_keys()) - before)[:2]:
            direct.delete(key)

    direct.front.tamper(MANIFEST, lose_two)
    state = many(9, 6)
    with caplog.at_level(logging.WARNING, logger="shardkeep"):
        checkpoint = new_run().save(1, state).wait(60)
    assert direct.front.count(MANIFEST) == 2
    assert "sending 2 lost chunks" in caplog.text
    assert direct.front.count(STREAMED) == 0
    numbers = sorted(key.rpartition(".")[2] for key in set(direct.chunk_keys()) - before)
    assert numbers == ["1"] * 4 + ["2"] * 2
    assert_loads(checkpoint, state)


def test_an_object_of_another_size_is_not_taken_for_the_chunk(
    direct: DirectService, new_run: Callable[[], Run]
) -> None:
    before = set(direct.chunk_keys())

    def cut_one(_: Exchange) -> None:
        direct.overwrite(min(set(direct.chunk_keys()) - before), b"cut")

    direct.front.tamper(MANIFEST, cut_one)
    state = many(10, 3)
    assert_loads(new_run().save(1, state).wait(60), state)


def test_an_object_that_is_gone_is_an_integrity_error_and_the_next_save_heals_it(
    direct: DirectService, new_run: Callable[[], Run]
) -> None:
    before, run, state = set(direct.chunk_keys()), new_run(), many(11, 3)
    checkpoint = run.save(1, state).wait(60)
    direct.delete(min(set(direct.chunk_keys()) - before))
    with pytest.raises(IntegrityError, match="the service was told"):
        assert_loads(checkpoint, state)
    assert_loads(run.save(2, state).wait(60), state)
    assert_loads(checkpoint, state)


def test_two_ranks_with_the_same_chunk_send_it_to_one_key(direct: DirectService) -> None:
    world = [sk.World(rank, 2, "ab" * 16) for rank in range(2)]
    same = noise(12, 200_000)
    states = [{f"mine{rank}": noise(13 + rank, 200_000), f"same{rank}": same.copy()} for rank in range(2)]
    clients = [direct.connect() for _ in world]
    checkpoints: list[sk.Checkpoint] = []

    def save(rank: int) -> None:
        attempt = clients[rank].run("direct/pair").begin_attempt(world[rank])
        attempt.decide_resume()
        checkpoints.append(PlainSaver(attempt).save(1, states[rank], {}).wait(60))

    threads = [threading.Thread(target=save, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = checkpoints
    assert first.id == second.id
    assert_loads(first, {**states[0], **states[1]})
    for client in clients:
        client.close()


def test_two_runs_that_send_the_same_chunks_at_once_both_commit(direct: DirectService) -> None:
    """The chunk is pending for one of them: the other streams it."""
    state = many(14, 6)
    direct.store.tamper(PUT, lambda _: time.sleep(0.1), times=100)
    with direct.connect() as client:
        handles = [client.run(f"direct/twin-{number}").save(1, state) for number in range(2)]
        checkpoints = [handle.wait(60) for handle in handles]
        assert checkpoints[0].id != checkpoints[1].id
        for checkpoint in checkpoints:
            assert_loads(checkpoint, state)


def test_a_save_whose_twin_is_aborted_commits_all_the_same(direct: DirectService) -> None:
    state = many(15, 6)
    release = threading.Event()

    def hold(_: Exchange) -> None:
        release.wait(120)

    direct.store.tamper(PUT, hold, times=6)
    with direct.connect() as client, direct.connect() as other:
        doomed = client.run("direct/doomed")
        handle = doomed.save(1, state)
        wait_until(lambda: direct.front.count(NEGOTIATE))
        survivor = other.run("direct/survivor").save(1, state)
        other.service.abort(handle.checkpoint_id, rank=0, reason="test")
        release.set()
        with pytest.raises(SaveFailed):
            handle.wait(60)
        assert_loads(survivor.wait(60), state)
        assert_loads(doomed.save(2, state).wait(60), state)


def test_streamed_and_direct_saves_share_one_bucket(seaweedfs: S3Server, tmp_path: Path) -> None:
    state = many(16, 6)
    with direct_service(seaweedfs, tmp_path) as service:
        with service.connect() as client:
            first = client.run("mixed/run").save(1, state).wait(60).id
        service.process.restart(env={"SHARDKEEP_SERVICE_DIRECT": "never"})
        with service.connect() as client:
            run = client.run("mixed/run")
            run.resume()
            changed = {**state, "w1": noise(161, 5000), "w2": noise(162, 5000)}
            second = run.save(2, changed).wait(60)
            assert service.front.count(STREAMED) > 0
            puts, gets = service.store.count(PUT), service.store.count(GET)
            assert_loads(client.checkpoint(first), state)
            assert_loads(second, changed)
            assert (service.store.count(PUT), service.store.count(GET)) == (puts, gets)
            assert client.service.capabilities().uploads == ["streamed"]
        service.process.restart()
        with service.connect() as client:
            assert client.service.capabilities().uploads == ["streamed", "direct"]
            assert_loads(client.checkpoint(second.id), changed)
            assert service.store.count(GET) > gets


def test_urls_that_expire_in_the_queue_are_asked_for_again(seaweedfs: S3Server, tmp_path: Path) -> None:
    lifetime_seconds = 4
    env = {"SHARDKEEP_SERVICE_DIRECT_LIFETIME_SECONDS": str(lifetime_seconds)}
    with direct_service(seaweedfs, tmp_path, env=env) as service, service.connect(upload_workers=1) as client:
        service.store.tamper(PUT, lambda _: time.sleep(lifetime_seconds + 1))
        state = many(17, 10)
        checkpoint = client.run("short/run").save(1, state).wait(60)
        statuses = [item.status for item in service.store.exchanges if item.method == "PUT"]
        assert 403 in statuses
        assert service.front.count(STREAMED) == 0
        service.store.fail(GET, Reply(status=403, headers={}, body=b"<Error><Code>AccessDenied</Code></Error>"))
        assert_loads(checkpoint, state)
        assert service.front.count(READ) == 0
        assert service.front.count(READ_TARGETS) >= 2


@pytest.mark.parametrize("how", ["refused", "unknown name", "no TLS"])
def test_an_unreachable_public_endpoint_is_said_once_and_the_chunks_are_streamed(
    seaweedfs: S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    with contextlib.ExitStack() as stack:
        closed = {
            "refused": f"http://127.0.0.1:{stack.enter_context(closed_port())}",
            "unknown name": "http://store.invalid:9000",
            "no TLS": f"https://127.0.0.1:{seaweedfs.port}",
        }[how]
        env = {"SHARDKEEP_SERVICE_S3_PUBLIC_ENDPOINT_URL": closed}
        service = stack.enter_context(direct_service(seaweedfs, tmp_path, env=env))
        client = stack.enter_context(service.connect(retry_seconds=5))
        state, run = many(18, 12), client.run("far/run")
        with caplog.at_level(logging.WARNING, logger="shardkeep"):
            run.save(1, state).wait(60)
            state["w0"] = noise(1, 1000)
            checkpoint = run.save(2, state).wait(60)
            assert_loads(checkpoint, state)
        said = [record.getMessage() for record in caplog.records if "cannot be used" in record.getMessage()]
        assert len(said) == 1
        assert closed.partition("//")[2] in said[0]
        assert "SHARDKEEP_SERVICE_S3_PUBLIC_ENDPOINT_URL" in said[0]
        assert "?" not in said[0]
        assert service.front.count(STREAMED) == 13


def test_a_restart_of_the_service_in_the_middle_of_direct_uploads_loses_nothing(
    seaweedfs: S3Server, tmp_path: Path
) -> None:
    with direct_service(seaweedfs, tmp_path) as service, service.connect(retry_seconds=120) as client:
        restarted = threading.Event()

        def restart(_: Exchange) -> None:
            service.process.kill()
            service.process.start()
            restarted.set()

        service.store.tamper(PUT, lambda _: None, times=3)
        service.store.tamper(PUT, restart)
        state = many(19, 16)
        checkpoint = client.run("restart/run").save(1, state).wait(150)
        assert restarted.is_set()
        assert service.front.count(STREAMED) == 0
        assert_loads(checkpoint, state)


def test_no_signature_or_token_is_in_any_log_or_error(direct: DirectService, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    with direct.connect() as client:
        run, state = client.run("secret/run"), many(20, 3)
        direct.store.fail(PUT, Reply(status=503, headers={}, body=b"<Error><Code>SlowDown</Code></Error>"), times=2)
        assert_loads(run.save(1, state).wait(60), state)
        leaking = b"<Error><Code>Weird</Code><Message>no ?X-Amz-Signature=abc</Message><StringToSign>x</StringToSign>"
        direct.store.fail(PUT, Reply(status=405, headers={}, body=leaking), times=100)
        with pytest.raises(SaveFailed, match="Weird") as caught:
            run.save(2, many(21, 1)).wait(60)
        texts += [str(caught.value), repr(caught.value), repr(caught.value.__cause__)]
    texts += [record.getMessage() for record in caplog.records]
    texts.append(direct.process.log)
    assert any("urllib3" in record.name and "chunks/" in record.getMessage() for record in caplog.records)
    for text in texts:
        for secret in ("X-Amz-Signature", "X-Amz-Credential", "StringToSign", direct.process.token):
            assert secret.lower() not in text.lower()
        assert direct.server.secret_key not in text
