"""What networks and object stores do to direct uploads and reads: never a lost or half checkpoint."""

from __future__ import annotations

import itertools
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.connection import target_lifetimes
from shardkeep.errors import IntegrityError, PermissionDenied, SaveFailed
from shardkeep.protocol.messages import Target
from shardkeep.store.run import Run
from tests.faulty_proxy import Exchange, FaultyProxy, Reply
from tests.integration.client.direct_service import (
    GET,
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

pytestmark = pytest.mark.s3

ALWAYS = 10**6
SLOW_DOWN = Reply(
    status=503, headers={}, body=b"<Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>"
)
DROPPED = Reply(nothing=True)
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch)


@pytest.fixture(scope="module")
def shared(seaweedfs: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectService]:
    with direct_service(seaweedfs, tmp_path_factory.mktemp("faults")) as service:
        yield service


@pytest.fixture
def service(shared: DirectService) -> DirectService:
    for proxy in (shared.front, shared.store):
        proxy.forget()
    return shared


@pytest.fixture
def new_run(service: DirectService) -> Iterator[Callable[[], Run]]:
    with service.connect(retry_seconds=120) as client:
        yield lambda: client.run(f"faults/run-{next(_numbers)}")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "cannot be used" in record.getMessage()]


def test_E142_a_storm_of_slow_downs_is_waited_out_and_nothing_is_streamed(
    service: DirectService, new_run: Callable[[], Run]
) -> None:
    draws = random.Random(1)

    def throttle(exchange: Exchange) -> Reply:
        return SLOW_DOWN if draws.random() < 0.3 else Reply()

    service.store.fail(PUT, throttle, times=ALWAYS)
    state = many(1, 40)
    checkpoint = new_run().save(1, state).wait(120)
    assert service.store.count(PUT) > 40
    assert service.front.count(STREAMED) == 0
    service.store.forget()
    assert_loads(checkpoint, state)


def test_E142_a_store_that_throttles_for_ever_fails_the_save_and_is_named(service: DirectService) -> None:
    service.store.fail(PUT, SLOW_DOWN, times=ALWAYS, forwards=False)
    with service.connect(retry_seconds=2) as client:
        run = client.run("faults/throttled")
        with pytest.raises(SaveFailed, match="SlowDown"):
            run.save(1, many(2, 3)).wait(60)
        service.store.forget()
        state = many(2, 3)
        assert_loads(run.save(2, state).wait(60), state)


def test_E151_ranks_whose_store_throttles_or_refuses_for_ever_end_the_save_for_all_within_seconds(
    service: DirectService,
) -> None:
    """World 4: rank 2 is told to slow down for ever, rank 3 that its region is wrong."""
    wrong = Reply(status=400, headers={}, body=b"<Error><Code>AuthorizationHeaderMalformed</Code></Error>")
    bodies = [noise(30 + rank, 100_000) for rank in range(4)]
    marks = {bodies[2][:64].tobytes(): SLOW_DOWN, bodies[3][:64].tobytes(): wrong}
    service.store.fail(
        PUT,
        lambda exchange: next((reply for mark, reply in marks.items() if mark in exchange.body), Reply()),
        times=ALWAYS,
    )
    clients = [service.connect(retry_seconds=3) for _ in range(4)]
    failures: dict[int, Exception] = {}

    def save(rank: int) -> None:
        from shardkeep.store.plain_saves import PlainSaver

        attempt = clients[rank].run("faults/world").begin_attempt(sk.World(rank, 4, "cd" * 16))
        attempt.decide_resume()
        try:
            PlainSaver(attempt).save(1, {f"w{rank}": bodies[rank]}, {}).wait(60)
        except SaveFailed as failure:
            failures[rank] = failure

    started = time.monotonic()
    threads = [threading.Thread(target=save, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(failures) == [0, 1, 2, 3]
    assert time.monotonic() - started < 60, "nobody waited for a lease to lapse"
    for rank in (0, 1):
        assert "rank 3" in str(failures[rank]) or "rank 2" in str(failures[rank])
    assert clients[0].run("faults/world").latest() is None
    service.store.forget()
    for client in clients:
        client.close()


def test_a_put_that_stands_still_is_sent_again(service: DirectService) -> None:
    over, state = threading.Event(), many(3, 8)

    def stand_still(_: Exchange) -> None:
        over.wait(60)

    with service.connect(read_timeout_seconds=2, retry_seconds=120) as client:
        run = client.run("faults/stall")
        run.save(1, many(31, 1)).wait(60)  # a store that was never reached is given up early
        service.store.tamper(PUT, stand_still, times=3)
        checkpoint = run.save(2, state).wait(120)
        over.set()
        assert_loads(checkpoint, state)
    assert service.front.count(STREAMED) == 0


def test_connections_that_break_after_the_store_was_reached_are_made_again(
    service: DirectService, new_run: Callable[[], Run]
) -> None:
    run = new_run()
    run.save(1, many(4, 2)).wait(60)
    service.store.fail(PUT, DROPPED, times=30, forwards=False)
    state = many(5, 12)
    assert_loads(run.save(2, state).wait(60), state)
    assert service.front.count(STREAMED) == 0


def test_E153_a_store_that_cannot_be_reached_any_more_in_the_middle_of_a_save_is_left_for_the_service(
    service: DirectService, caplog: pytest.LogCaptureFixture
) -> None:
    service.store.tamper(PUT, lambda _: None, times=4)
    service.store.fail(PUT, DROPPED, times=ALWAYS, forwards=False)
    state = many(6, 12)
    with service.connect(retry_seconds=2) as client, caplog.at_level(logging.WARNING, logger="shardkeep"):
        checkpoint = client.run("faults/gone").save(1, state).wait(60)
        assert len(said(caplog)) == 1
        assert service.front.count(STREAMED) == 8
        assert_loads(checkpoint, state)


CODES = ["AccessDenied", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "ExpiredToken"]


@pytest.mark.parametrize("code", CODES)
def test_E148_a_store_whose_clock_or_keys_disagree_with_the_services_is_left_for_the_service(
    service: DirectService, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    status = 400 if code == "ExpiredToken" else 403
    service.store.fail(PUT, Reply(status=status, headers={}, body=body), times=ALWAYS, forwards=False)
    state = many(70 + CODES.index(code), 5)
    with service.connect() as client, caplog.at_level(logging.WARNING, logger="shardkeep"):
        checkpoint = client.run(f"faults/skewed-{code}").save(1, state).wait(60)
        assert_loads(checkpoint, state)
    assert len(said(caplog)) == 1
    assert code in said(caplog)[0]
    assert service.front.count(STREAMED) == 5


@pytest.mark.parametrize("minutes", [-20, 20])
def test_E148_a_client_whose_clock_is_wrong_saves_and_loads_directly(
    service: DirectService, new_run: Callable[[], Run], monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    monkeypatch.setattr(target_lifetimes, "utc_now", lambda: datetime.now(UTC) + timedelta(minutes=minutes))
    state = many(800 + minutes, 12)
    assert_loads(new_run().save(1, state).wait(60), state)
    assert (service.front.count(STREAMED), service.front.count(READ)) == (0, 0)
    assert service.front.count(NEGOTIATE) <= 12


def test_E148_chunks_that_wait_for_longer_than_their_urls_live_are_sent_all_the_same(
    seaweedfs: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lifetime_seconds = 4
    env = {"SHARDKEEP_SERVICE_DIRECT_LIFETIME_SECONDS": str(lifetime_seconds)}
    with direct_service(seaweedfs, tmp_path_factory.mktemp("queue"), env=env) as service:
        for sent_before in (0, 8):
            service.store.tamper(PUT, lambda _: None, times=sent_before)
            service.store.tamper(PUT, lambda _: time.sleep(lifetime_seconds + 1))
        state = many(9, 20)
        with service.connect(upload_workers=1) as client:
            assert_loads(client.run("faults/queue").save(1, state).wait(120), state)
        assert any(exchange.status == 403 for exchange in service.store.exchanges), "no URL had expired"
        assert service.front.count(STREAMED) == 0


def test_E149_a_url_holds_until_it_expires_and_not_after(
    seaweedfs: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lifetime_seconds = 4
    env = {"SHARDKEEP_SERVICE_DIRECT_LIFETIME_SECONDS": str(lifetime_seconds)}
    directory = tmp_path_factory.mktemp("lifetime")
    with direct_service(seaweedfs, directory, env=env) as service, service.connect() as client:
        checkpoint = client.run("faults/lifetime").save(1, many(10, 1)).wait(60)
        [chunk] = checkpoint.manifest().chunks()
        out = memoryview(bytearray(chunk.size_bytes))

        def new_target() -> tuple[Target, datetime]:
            asked = datetime.now(UTC)
            [target] = client.service.read_targets(checkpoint.id, [chunk.digest], direct=True)
            assert target.expires_at is not None
            lives = timedelta(seconds=lifetime_seconds)
            assert asked + lives - timedelta(seconds=1) < target.expires_at <= datetime.now(UTC) + lives
            return target, target.expires_at

        def read(target: Target) -> None:
            client.service.read_range_into(target, chunk, 0, [out])

        def used_in_its_last_second() -> tuple[Target, datetime]:
            """Another one is taken where this machine stood still until the end of the one before."""
            while True:
                target, expires_at = new_target()
                sleep_until(expires_at - timedelta(seconds=1))
                try:
                    read(target)
                except PermissionDenied:
                    if datetime.now(UTC) < expires_at:
                        raise
                else:
                    return target, expires_at

        target, expires_at = used_in_its_last_second()
        sleep_until(expires_at + timedelta(seconds=1.1))
        with pytest.raises(PermissionDenied):
            read(target)


def sleep_until(moment: datetime) -> None:
    time.sleep(max((moment - datetime.now(UTC)).total_seconds(), 0))


Cut = Callable[[bytes], Reply]
CUTS: dict[str, Cut] = {
    "closed after 80 % with the length told": lambda body: Reply(cut_after=len(body) * 8 // 10),
    "closed after 80 % without a length": lambda body: Reply(cut_after=len(body) * 8 // 10, framing="close"),
    "cut in the middle of chunked coding": lambda body: Reply(cut_after=len(body) * 8 // 10, framing="chunked"),
    "nothing at all": lambda _: DROPPED,
    "throttled": lambda _: SLOW_DOWN,
}


@pytest.mark.parametrize("how", CUTS)
def test_E159_a_cut_direct_read_goes_on_where_it_stopped(
    service: DirectService, new_run: Callable[[], Run], how: str
) -> None:
    state = many(11, 6)
    checkpoint = new_run().save(1, state).wait(60)
    service.store.fail(GET, lambda exchange: CUTS[how](exchange.answer), times=4)
    assert_loads(checkpoint, state)
    assert service.front.count(READ) == 0


def test_E161_every_kind_of_answer_to_a_range_of_a_direct_read_gives_the_right_bytes(
    service: DirectService, new_run: Callable[[], Run]
) -> None:
    """206 right, 200 whole, 200 with Content-Range, 206 from another start, 416."""
    state = {"w": noise(12, 200_000)}
    checkpoint = new_run().save(1, state).wait(60)
    [key] = [key for key, size in service.chunk_keys().items() if size == 200_000]
    whole = service.server.client.get_object(Bucket=service.bucket, Key=key)["Body"].read()
    first, last = 50_000, 149_999

    def shifted(_: Exchange) -> Reply:
        return Reply(206, {"content-range": f"bytes {first + 1}-{last}/200000"}, whole[first + 1 : last + 1])

    answers: list[Callable[[Exchange], Reply]] = [
        lambda _: Reply(),
        lambda _: Reply(200, {}, whole),
        lambda _: Reply(200, {"content-range": f"bytes {first}-{last}/200000"}, whole[first : last + 1]),
        shifted,
        lambda _: Reply(416, {"content-range": "bytes */200000"}, b""),
    ]
    for answer in answers:
        service.store.forget()
        service.store.fail(GET, answer)
        found = checkpoint.tensor("w")[first : last + 1]
        np.testing.assert_array_equal(found, state["w"][first : last + 1])


def test_E162_an_object_that_changes_between_the_parts_of_a_read_is_never_joined(
    service: DirectService, new_run: Callable[[], Run]
) -> None:
    state = {"w": noise(13, 250_000)}
    checkpoint = new_run().save(1, state).wait(60)
    [key] = [key for key, size in service.chunk_keys().items() if size == 250_000]
    whole = state["w"].tobytes()

    def cut_and_change(exchange: Exchange) -> Reply:
        service.overwrite(key, whole[:-1] + b"?")
        return Reply(cut_after=len(exchange.answer) // 2)

    service.store.fail(GET, cut_and_change)
    with pytest.raises(IntegrityError):
        assert_loads(checkpoint, state)
    service.overwrite(key, whole)


def test_reads_of_a_store_that_cannot_be_reached_are_streamed_and_it_is_said_once(
    service: DirectService, new_run: Callable[[], Run], caplog: pytest.LogCaptureFixture
) -> None:
    state = many(14, 6)
    checkpoint_id = new_run().save(1, state).wait(60).id
    service.store.fail(GET, DROPPED, times=ALWAYS, forwards=False)
    with service.connect(retry_seconds=3) as client, caplog.at_level(logging.WARNING, logger="shardkeep"):
        checkpoint = client.checkpoint(checkpoint_id)
        assert_loads(checkpoint, state)
        assert_loads(checkpoint, state)
    assert len(said(caplog)) == 1
    assert service.front.count(READ) > 0
    assert service.front.count(READ_TARGETS) <= 3, "one a load, and one for all readers when the store is given up"


LISTING = r"^GET /[^?]*\?.*list-type=2.*chunks"


def without_the_first(exchange: Exchange) -> Reply:
    return Reply(body=re.sub(rb"<Contents>.*?</Contents>", b"", exchange.answer, count=1, flags=re.DOTALL))


def with_another_size(exchange: Exchange) -> Reply:
    return Reply(body=re.sub(rb"<Size>\d+</Size>", b"<Size>7</Size>", exchange.answer, count=1))


WRONG_LISTINGS: dict[str, tuple[Callable[[Exchange], Reply], int]] = {
    "an object left out": (without_the_first, 1),
    "another size": (with_another_size, 1),
    "throttled": (lambda _: SLOW_DOWN, 0),
    "no answer": (lambda _: DROPPED, 0),
}


@pytest.mark.parametrize("how", WRONG_LISTINGS)
def test_a_listing_that_is_wrong_costs_an_upload_and_never_a_chunk(
    seaweedfs: S3Server, tmp_path_factory: pytest.TempPathFactory, how: str
) -> None:
    fault, sent_again = WRONG_LISTINGS[how]
    bucket = seaweedfs.new_bucket()
    with FaultyProxy(seaweedfs.port) as inside:
        env = {"SHARDKEEP_SERVICE_S3_ENDPOINT_URL": inside.url}
        directory = tmp_path_factory.mktemp("listing")
        with direct_service(seaweedfs, directory, env=env, bucket=bucket) as service, service.connect() as client:
            run, state = client.run("faults/listing"), many(15, 6)
            run.save(1, many(16, 1)).wait(60)
            inside.forget()
            service.store.forget()
            inside.fail(LISTING, fault)
            checkpoint = run.save(2, state).wait(60)
            assert inside.count(LISTING) == 2
            assert service.store.count(PUT) == 6 + sent_again
            assert service.front.count(STREAMED) == 0
            assert_loads(checkpoint, state)
