"""Operations on a store are tried again while that may help, for a bounded time, and no others are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest

from shardkeep_service.blob_store.blob_store import BlobInfo, BlobStore
from shardkeep_service.blob_store.errors import (
    BlobExists,
    BlobMissing,
    BlobStoreError,
    BlobStoreFull,
    BlobStoreRefused,
    BlobStoreUnavailable,
)
from shardkeep_service.blob_store.memory import MemoryBlobStore
from shardkeep_service.blob_store.retrying import RetryingBlobStore, RetryPolicy
from tests.faulty_blob_store import FaultyBlobStore

BODY = memoryview(b"0123456789")


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def faulty() -> FaultyBlobStore:
    store = FaultyBlobStore(MemoryBlobStore())
    store.put("a", BODY)
    store.put("b", BODY)
    return store


@pytest.fixture
def wrap(time: Time) -> Callable[..., RetryingBlobStore]:
    def make(store: BlobStore, policy: RetryPolicy | None = None, draw: float = 1.0) -> RetryingBlobStore:
        return RetryingBlobStore(store, policy, clock=lambda: time.now, sleep=time.sleep, draw=lambda: draw)

    return make


def operations(store: BlobStore) -> dict[str, Callable[[], object]]:
    return {
        "put": lambda: store.put("new", BODY),
        "read_into": lambda: store.read_into("a", 0, memoryview(bytearray(5))),
        "stream": lambda: list(store.stream("a", 0, 10, piece_bytes=3)),
        "size": lambda: store.size("a"),
        "delete": lambda: store.delete(["a"]),
        "list": lambda: list(store.list("")),
    }


NAMES = list(operations(MemoryBlobStore()))


@pytest.mark.parametrize("operation", NAMES)
def test_every_operation_is_tried_again_until_it_succeeds(
    faulty: FaultyBlobStore, wrap: Callable[..., RetryingBlobStore], time: Time, operation: str
) -> None:
    faulty.fail(operation, BlobStoreUnavailable("no"), times=3)
    operations(wrap(faulty))[operation]()
    assert time.slept == [0.1, 0.2, 0.4]


@pytest.mark.parametrize("operation", NAMES)
@pytest.mark.parametrize("error", [BlobMissing("x"), BlobExists("x"), BlobStoreFull("x"), BlobStoreRefused("x")])
def test_what_does_not_pass_by_itself_is_not_tried_again(
    faulty: FaultyBlobStore,
    wrap: Callable[..., RetryingBlobStore],
    time: Time,
    operation: str,
    error: BlobStoreError,
) -> None:
    faulty.fail(operation, error)
    with pytest.raises(type(error)):
        operations(wrap(faulty))[operation]()
    assert time.slept == []


def test_the_window_bounds_the_time_and_the_error_says_how_often_it_was_tried(
    faulty: FaultyBlobStore, wrap: Callable[..., RetryingBlobStore], time: Time
) -> None:
    faulty.fail("size", BlobStoreUnavailable("no answer"), times=1000)
    with pytest.raises(BlobStoreUnavailable, match=r"no answer; gave up after \d+ tries in 20 s"):
        wrap(faulty).size("a")
    assert time.now == pytest.approx(20)
    assert max(time.slept) <= 5


def test_the_delays_are_drawn_anew(faulty: FaultyBlobStore, wrap: Callable[..., RetryingBlobStore], time: Time) -> None:
    faulty.fail("size", BlobStoreUnavailable("no"), times=3)
    wrap(faulty, draw=0.5).size("a")
    assert time.slept == [0.05, 0.1, 0.2]


def test_E142_a_store_that_asks_to_slow_down_is_left_alone_for_longer_and_as_long_as_it_says(
    faulty: FaultyBlobStore, wrap: Callable[..., RetryingBlobStore], time: Time
) -> None:
    faulty.fail("put", BlobStoreUnavailable("slow", throttled=True))
    faulty.fail("put", BlobStoreUnavailable("slow", throttled=True, retry_after_seconds=4))
    wrap(faulty).put("new", BODY)
    assert time.slept == [0.5, 4 + 1.0]


def test_E142_a_wait_that_the_window_does_not_hold_is_left_to_the_client(
    faulty: FaultyBlobStore, wrap: Callable[..., RetryingBlobStore], time: Time
) -> None:
    faulty.fail("put", BlobStoreUnavailable("slow down", throttled=True, retry_after_seconds=60))
    with pytest.raises(BlobStoreUnavailable, match="slow down") as caught:
        wrap(faulty).put("new", BODY)
    assert caught.value.retry_after_seconds == 60
    assert caught.value.throttled
    assert time.slept == []


def test_a_put_that_succeeded_and_failed_to_say_so_is_not_a_conflict(
    faulty: FaultyBlobStore, wrap: Callable[..., RetryingBlobStore]
) -> None:
    faulty.fail("put", BlobStoreUnavailable("lost answer"), after=True)
    wrap(faulty).put("new", BODY)
    assert faulty.size("new") == 10


class _Breaking(MemoryBlobStore):
    """Breaks streams and lists off after some items, a number of times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    def _broken(self, items: Iterator[object], count: int) -> Iterator[object]:
        broken = self.left > 0
        self.left -= 1
        yield from itertools.islice(items, count if broken else None)
        if broken:
            raise BlobStoreUnavailable("broke off")

    def stream(self, key: str, offset: int, length: int, *, piece_bytes: int) -> Iterator[memoryview]:
        return self._broken(super().stream(key, offset, length, piece_bytes=piece_bytes), 2)  # type: ignore[return-value]

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        return self._broken(super().list(prefix, after=after), 2)  # type: ignore[return-value]


def test_a_stream_that_breaks_off_goes_on_where_it_was(wrap: Callable[..., RetryingBlobStore]) -> None:
    store = _Breaking(times=3)
    store.put("a", memoryview(bytes(range(100))))
    pieces: Sequence[bytes] = [bytes(piece) for piece in wrap(store).stream("a", 5, 90, piece_bytes=10)]
    assert b"".join(pieces) == bytes(range(5, 95))


def test_a_list_that_breaks_off_gives_every_object_once(wrap: Callable[..., RetryingBlobStore]) -> None:
    store = _Breaking(times=3)
    keys = [f"k/{number}" for number in range(9)]
    for key in keys:
        store.put(key, BODY)
    assert [info.key for info in wrap(store).list("k/")] == keys


def test_progress_begins_a_new_window(wrap: Callable[..., RetryingBlobStore], time: Time) -> None:
    store = _Breaking(times=40)
    store.put("a", memoryview(bytes(100)))
    pieces = list(wrap(store, RetryPolicy(window_seconds=0.5)).stream("a", 0, 100, piece_bytes=1))
    assert len(pieces) == 100
    assert time.now > 0.5


def test_retries_are_told(faulty: FaultyBlobStore, time: Time) -> None:
    told: list[str] = []
    faulty.fail("put", BlobStoreUnavailable("no"), times=2)
    RetryingBlobStore(faulty, on_retry=told.append, sleep=time.sleep).put("new", BODY)
    assert told == ["put", "put"]
