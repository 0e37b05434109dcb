"""What object stores do to streamed saves, by a store that fails as it is told: never a lost or half checkpoint."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import shardkeep as sk
from shardkeep.errors import ShardkeepError
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind
from shardkeep.protocol import routes
from shardkeep_service.blob_store.blob_store import BlobInfo
from shardkeep_service.blob_store.errors import BlobStoreFull, BlobStoreRefused, BlobStoreUnavailable
from shardkeep_service.blob_store.memory import MemoryBlobStore
from shardkeep_service.blob_store.retrying import RetryingBlobStore, RetryPolicy
from shardkeep_service.catalogue.commit_records import write_commit_records
from shardkeep_service.garbage_collection.bucket_check import CollectionStopped
from shardkeep_service.garbage_collection.collector import steps
from tests.failures.storage.kept_states import CHUNK_BYTES, FaultyService, KeptStates
from tests.faulty_blob_store import FaultyBlobStore
from tests.integration.client.direct_service import small_chunks
from tests.waiting import wait_until

FOREVER = 1_000_000
MORE_THAN_ONE_REQUEST_TRIES = 15
DAY = 86_400.0
UNAVAILABLE = BlobStoreUnavailable("the store failed")
SLOW_DOWN = BlobStoreUnavailable("the store asks to slow down", throttled=True)


@pytest.fixture(autouse=True)
def _many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, CHUNK_BYTES)


@pytest.fixture(autouse=True)
def _kept_logs() -> Iterator[None]:
    """The console renderer of logs that nobody configured takes seconds for each traceback; ours are expected."""
    with capture_logs():
        yield


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FaultyService]:
    running = FaultyService(tmp_path, housekeeping_seconds=0.3, validation_lease_seconds=1.0)
    with running.local:
        yield running


@pytest.fixture
def kept(service: FaultyService) -> Iterator[KeptStates]:
    with service.connect() as client:
        states = KeptStates(client, "storage/faults")
        states.save(1)
        yield states


@pytest.mark.parametrize("operation", ["put", "read_into", "size"])
@pytest.mark.parametrize("after", [False, True])
def test_failures_that_pass_are_not_seen_by_a_save(
    service: FaultyService, kept: KeptStates, operation: str, after: bool
) -> None:
    service.store.fail(operation, UNAVAILABLE, times=3, after=after)
    kept.save(2)
    kept.check()


@pytest.mark.parametrize("what", ["chunks/", "manifests/", "indexes/"])
def test_a_storm_of_failures_longer_than_the_store_is_tried_is_outlived_by_the_client(
    service: FaultyService, kept: KeptStates, what: str
) -> None:
    fault = service.store.fail("put", UNAVAILABLE, pattern=what, times=FOREVER)
    state = kept.state(2)
    handle = kept.run.save(2, state)
    wait_until(lambda: fault.met > MORE_THAN_ONE_REQUEST_TRIES)  # so the client was refused, and asked again
    service.store.heal()
    kept.committed[handle.wait(60).id] = state
    kept.check()


def test_one_put_in_three_fails_all_the_time_and_half_of_those_were_done(
    service: FaultyService, kept: KeptStates
) -> None:
    rng = random.Random(1)
    for _ in range(30):
        service.store.fail(
            "put", UNAVAILABLE, pattern=f"{rng.randrange(16):x}$|[.]1$", times=1, after=rng.random() < 0.5
        )
    for step in range(2, 6):
        kept.save(step)
    service.store.heal()
    kept.check()


def test_E142_256_writers_at_a_store_that_throttles_30_percent_all_end_well() -> None:
    rng, lock = random.Random(7), threading.Lock()

    class Throttling(FaultyBlobStore):
        def put(self, key: str, body: memoryview, *, crc64: int | None = None) -> None:
            with lock:
                throttled = rng.random() < 0.3
            if throttled:
                raise SLOW_DOWN
            super().put(key, body, crc64=crc64)

    store = Throttling(MemoryBlobStore())
    retrying = RetryingBlobStore(store, RetryPolicy(window_seconds=60))

    def write(writer: int) -> None:
        for part in range(20):
            retrying.put(f"w{writer}/{part}", memoryview(b"x"))

    with ThreadPoolExecutor(256) as pool:
        list(pool.map(write, range(256)))
    assert len(list(store.list(""))) == 256 * 20


def test_E142_a_save_that_fails_for_throttling_says_so(service: FaultyService, kept: KeptStates) -> None:
    service.store.fail("put", SLOW_DOWN, pattern="chunks/", times=FOREVER)
    with service.connect(retry_seconds=2) as impatient:
        run = impatient.run("storage/throttled")
        with pytest.raises(ShardkeepError, match="throttling"):
            run.save(1, kept.state(2)).wait(60)
    service.store.heal()
    kept.check()


@pytest.mark.parametrize("operation", ["put", "read_into"])
def test_stalls_delay_a_save_and_do_no_more(service: FaultyService, kept: KeptStates, operation: str) -> None:
    service.store.fail(operation, times=3, stall_seconds=1.0)
    kept.save(2)
    kept.check()


@pytest.mark.parametrize("short_bytes", [0, 1, 50])
def test_short_reads_of_a_manifest_are_no_manifest(service: FaultyService, kept: KeptStates, short_bytes: int) -> None:
    fault = service.store.fail("read_into", pattern="manifests/", short_bytes=short_bytes, times=2)
    kept.save(2)
    assert fault.met == 2
    kept.check()


def test_short_reads_of_chunks_are_repeated_by_the_reader(service: FaultyService, kept: KeptStates) -> None:
    fault = service.store.fail("stream", pattern="chunks/", short_bytes=30_000, times=3)
    kept.check()
    assert fault.met == 3


def test_a_full_store_fails_the_save_and_what_was_committed_stays(service: FaultyService, kept: KeptStates) -> None:
    service.store.fail("put", BlobStoreFull("no space left"), pattern="chunks/", times=FOREVER)
    with pytest.raises(ShardkeepError, match="no space left"):
        kept.save(2)
    kept.check()
    service.store.heal()
    kept.save(3)
    kept.check()


@pytest.mark.parametrize("what", ["manifests/", "indexes/"])
def test_a_store_that_is_full_at_the_last_moment_leaves_no_half_checkpoint(
    service: FaultyService, kept: KeptStates, what: str
) -> None:
    fault = service.store.fail("put", BlobStoreFull("no space left"), pattern=what, times=1)
    state = kept.state(2)
    handle = kept.run.save(2, state)
    wait_until(lambda: fault.met)
    kept.check()
    if what == "indexes/":  # the service's own part, which it repeats
        kept.committed[handle.wait(60).id] = state
    else:
        with pytest.raises(ShardkeepError, match="no space left"):
            handle.wait(60)
    kept.check()


def test_commit_records_that_could_not_be_written_are_written_later(service: FaultyService, kept: KeptStates) -> None:
    service.store.fail("put", UNAVAILABLE, pattern="commits/", times=FOREVER)
    kept.save(2)
    with pytest.raises(BlobStoreUnavailable):
        write_commit_records(service.local.context)
    service.store.heal()
    write_commit_records(service.local.context)
    records = {info.key for info in service.store.list("") if "/commits/" in info.key}
    assert len(records) >= 2
    kept.check()


def test_E153_a_store_that_is_away_for_one_of_ten_saves_costs_that_save_only(
    service: FaultyService, kept: KeptStates
) -> None:
    with service.connect(retry_seconds=1) as client:
        states = KeptStates(client, "storage/ten")
        failed = []
        for step in range(10):
            if step == 4:
                service.store.fail("put", UNAVAILABLE, pattern="chunks/", times=FOREVER)
            try:
                states.save(step)
            except ShardkeepError as error:
                failed.append((step, str(error)))
            service.store.heal()
        assert [step for step, _ in failed] == [4]
        assert "object store" in failed[0][1]
        states.check()
        ended = [checkpoint.state for checkpoint in states.run.checkpoints() if checkpoint.step == 4]
        assert ended in ([], ["aborted"])


def test_E151_ranks_whose_part_cannot_be_stored_are_named_to_all_within_seconds(service: FaultyService) -> None:
    service.store.fail("put", SLOW_DOWN, pattern=r"manifests/[^/]+/2\.", times=FOREVER)
    refused = BlobStoreRefused("bucket b is not in this region (it is in eu-west-9)")
    service.store.fail("put", refused, pattern=r"manifests/[^/]+/3\.", times=FOREVER)
    launch = "ab" * 16

    def save(rank: int) -> tuple[str, float]:
        with service.connect(retry_seconds=2) as client:
            attempt = client.run("storage/world").begin_attempt(sk.World(rank, 4, launch), ordinal=0)
            attempt.decide_resume()
            started = time.monotonic()
            with attempt.start_save(10, expected_bytes=4) as writer:
                writer.stage("w", "uint8", (4,), Region((rank,), (1,)), SliceKind.PARAMETER, fill=_filled_with(rank))
                handle = writer.finish()
            try:
                handle.wait(60)
            except ShardkeepError as error:
                return str(error), time.monotonic() - started
            finally:
                attempt.close()
        raise AssertionError(f"rank {rank} was told that the save succeeded")

    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(save, range(4)))
    assert max(seconds for _, seconds in ended) < 60, "nobody waited for a lease to lapse"
    assert all("rank 2" in said or "rank 3" in said for said, _ in ended[:2]), ended
    service.store.heal()
    with service.connect() as client:
        assert client.run("storage/world").latest() is None
        KeptStates(client, "storage/after").save(1)


def _filled_with(rank: int) -> Callable[[int, memoryview], None]:
    def fill(_start: int, out: memoryview) -> None:
        out[:] = bytes([rank]) * out.nbytes

    return fill


@pytest.mark.parametrize(
    "listing",
    [
        lambda found: [],
        lambda found: found[::2],
        lambda found: found[: len(found) // 2],
        lambda found: found + found,
        lambda found: [item for item in found for _ in range(2)],
        lambda found: [BlobInfo(item.key, 0) for item in found],
    ],
    ids=["empty", "every other", "half", "twice", "doubled", "no sizes"],
)
def test_wrong_listings_make_collection_delete_nothing_that_is_needed(
    service: FaultyService, kept: KeptStates, listing: Callable[[list[BlobInfo]], list[BlobInfo]]
) -> None:
    kept.save(2)
    doomed = kept.save(3)
    doomed.delete()
    del kept.committed[doomed.id]
    write_commit_records(service.local.context)
    service.store.fail("list", times=FOREVER, listing=listing)
    for _ in range(4):
        service.local.advance(8 * DAY)
        with contextlib.suppress(CollectionStopped):
            for _ in steps(service.local.context):
                pass
    service.store.heal()
    kept.check()
    kept.save(4)
    kept.check()


@pytest.mark.parametrize("after", [False, True])
def test_deletes_that_fail_or_only_say_so_lose_nothing_that_is_needed(
    service: FaultyService, kept: KeptStates, after: bool
) -> None:
    doomed = kept.save(2)
    kept.save(3)
    doomed.delete()
    del kept.committed[doomed.id]
    service.store.fail("delete", UNAVAILABLE, times=FOREVER, after=after)
    for _ in range(3):
        service.local.advance(8 * DAY)
        write_commit_records(service.local.context)
        with pytest.raises(BlobStoreUnavailable):
            for _ in steps(service.local.context):
                pass
        kept.check()
    service.store.heal()
    for _ in range(3):
        service.local.advance(8 * DAY)
        for _ in steps(service.local.context):
            pass
    kept.check()
    assert not [info.key for info in service.store.list("") if doomed.id in info.key]


def test_the_service_says_that_it_is_not_ready_while_the_store_refuses_it(service: FaultyService) -> None:
    service.store.fail("put", BlobStoreRefused("lacks s3:PutObject"), times=FOREVER)
    problem = service.local.refused("not_ready", "GET", routes.READYZ + "?verbose")
    assert problem["checks"]["blob_store"] == "failing"
