"""What the S3 store sends, and how it takes what stores answer: seen and faked by a proxy in front of a real one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest

from shardkeep_service.blob_store.errors import (
    BlobExists,
    BlobMissing,
    BlobStoreFull,
    BlobStoreRefused,
    BlobStoreUnavailable,
)
from shardkeep_service.blob_store.presigner import StoreAbilities
from shardkeep_service.blob_store.retrying import RetryingBlobStore, RetryPolicy
from shardkeep_service.blob_store.s3.checksums import crc64_of, crc64_text
from shardkeep_service.blob_store.s3.connection import S3Connection
from shardkeep_service.blob_store.s3.store import S3BlobStore
from shardkeep_service.blob_store.s3.store_clock import StoreClock
from tests.faulty_proxy import DROPPED, Exchange, FaultyProxy, Reply
from tests.integration.s3.buckets import Buckets
from tests.servers.s3_answers import FOREVER, s3_error, slow_down, stored_whatever_it_says

pytestmark = pytest.mark.s3
BODY = memoryview(os.urandom(300_000))
ALL = StoreAbilities("crc64nvme", True, True, True)


@pytest.fixture
def proxy(buckets: Buckets) -> Iterator[FaultyProxy]:
    with FaultyProxy(buckets.server.port) as running:
        yield running


@pytest.fixture
def new_store(buckets: Buckets, proxy: FaultyProxy) -> Callable[..., S3BlobStore]:
    def make(abilities: StoreAbilities = ALL, clock: StoreClock | None = None, **changed: Any) -> S3BlobStore:
        known = {"endpoint_url": proxy.url, "prefix": f"t{time.monotonic_ns()}", "read_timeout_seconds": 60.0}
        settings = buckets.settings(**{**known, **changed})
        return S3BlobStore(S3Connection(settings, connections=4, clock=clock), lambda: abilities)

    return make


@pytest.fixture
def store(new_store: Callable[..., S3BlobStore]) -> S3BlobStore:
    return new_store()


def read(store: S3BlobStore | RetryingBlobStore, key: str, size: int = len(BODY)) -> memoryview:
    out = memoryview(bytearray(size))
    store.read_into(key, 0, out)
    return out


def test_a_put_is_one_request_with_the_checksum_and_the_condition(store: S3BlobStore, proxy: FaultyProxy) -> None:
    store.put("a/b", BODY)
    [exchange] = proxy.exchanges
    assert exchange.headers["x-amz-checksum-crc64nvme"] == crc64_text(crc64_of(BODY))
    assert exchange.headers["if-none-match"] == "*"
    assert exchange.headers["content-length"] == str(len(BODY))
    assert exchange.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"


def test_a_checksum_given_is_sent_and_one_that_is_wrong_stores_nothing(store: S3BlobStore) -> None:
    with pytest.raises(BlobStoreUnavailable, match="damaged"):
        store.put("a/b", BODY, crc64=crc64_of(BODY) ^ 1)
    assert store.size("a/b") is None


@pytest.mark.parametrize(
    ("checksum", "header"), [("crc64nvme", "x-amz-checksum-crc64nvme"), ("crc32c", "x-amz-checksum-crc32c")]
)
def test_the_checksum_that_the_store_verifies_is_sent(
    new_store: Callable[..., S3BlobStore], proxy: FaultyProxy, checksum: Any, header: str
) -> None:
    new_store(StoreAbilities(checksum, False, True, False)).put("a/b", BODY)
    sent = {name for name in proxy.exchanges[0].headers if name.startswith("x-amz-checksum")}
    assert sent == {header}


def test_E139_without_a_verified_checksum_the_stored_size_is_looked_up(
    new_store: Callable[..., S3BlobStore], proxy: FaultyProxy, buckets: Buckets
) -> None:
    def cut(exchange: Exchange) -> Reply:
        exchange.body = exchange.body[: len(exchange.body) // 2]
        return stored_whatever_it_says(buckets.server)(exchange)

    store = new_store(StoreAbilities(None, False, True, False))
    proxy.fail("^PUT ", cut, forwards=False)
    with pytest.raises(BlobStoreUnavailable, match="150000 bytes in place of 300000"):
        store.put("a/b", BODY)


@pytest.mark.parametrize("size_bytes", [0, 5 << 20, 101 << 20])
def test_E139_E140_E157_an_object_of_any_size_is_one_put_and_no_multipart_upload(
    new_store: Callable[..., S3BlobStore], buckets: Buckets, proxy: FaultyProxy, size_bytes: int
) -> None:
    # Parts cannot be too many, cut at a limit, or left behind where there are none.
    proxy.fail("^PUT ", Reply(200, {"etag": '"x"'}, b""), times=FOREVER, forwards=False)
    new_store().put("a/b", memoryview(bytes(size_bytes)))
    assert [exchange.method for exchange in proxy.exchanges] == ["PUT"]
    assert "?" not in proxy.exchanges[0].path
    assert len(proxy.exchanges[0].body) == size_bytes
    assert "Uploads" not in buckets.server.client.list_multipart_uploads(Bucket=buckets.bucket)


def test_an_object_larger_than_one_put_takes_is_refused_before_a_byte_is_sent(
    store: S3BlobStore, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardkeep_service.blob_store.s3.store.OBJECT_BYTES_LIMIT", 1000)
    with pytest.raises(ValueError, match="one PUT takes 1000"):
        store.put("a/b", BODY)
    assert proxy.exchanges == []


def test_the_expected_owner_goes_with_every_request(new_store: Callable[..., S3BlobStore], proxy: FaultyProxy) -> None:
    store = new_store(expected_bucket_owner="123456789012")
    for call in (
        lambda: store.put("a", memoryview(b"x")),
        lambda: store.size("a"),
        lambda: store.read_into("a", 0, memoryview(bytearray(1))),
        lambda: list(store.list("")),
        lambda: store.delete(["a"]),
    ):
        call()
    assert {exchange.headers.get("x-amz-expected-bucket-owner") for exchange in proxy.exchanges} == {"123456789012"}


def test_encryption_is_asked_for_with_every_put(new_store: Callable[..., S3BlobStore], proxy: FaultyProxy) -> None:
    proxy.fail("^PUT ", Reply(200, {"etag": '"x"'}, b""), forwards=False)
    new_store(sse="aws:kms", sse_kms_key_id="key-1").put("a", BODY)
    headers = proxy.exchanges[0].headers
    assert headers["x-amz-server-side-encryption"] == "aws:kms"
    assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "key-1"


def test_a_thousand_keys_are_deleted_by_one_request(store: S3BlobStore, proxy: FaultyProxy) -> None:
    store.delete([f"never/{number}" for number in range(2500)])
    assert [exchange.method for exchange in proxy.exchanges] == ["POST"] * 3
    assert all("content-md5" in exchange.headers for exchange in proxy.exchanges)


def test_a_key_that_could_not_be_deleted_is_an_error_that_names_it(
    new_store: Callable[..., S3BlobStore], proxy: FaultyProxy
) -> None:
    store = new_store(prefix="p")
    answer = (
        '<?xml version="1.0"?><DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        "<Error><Key>p/a</Key><Code>{}</Code><Message>no</Message></Error></DeleteResult>"
    )
    for code, kind in (("AccessDenied", BlobStoreRefused), ("SlowDown", BlobStoreUnavailable)):
        proxy.fail("^POST ", Reply(200, {}, answer.format(code).encode()), forwards=False)
        with pytest.raises(kind, match=r"DeleteObject .*/a"):
            store.delete(["a", "b"])


def test_E143_a_put_whose_answer_was_lost_is_its_own_repetition(store: S3BlobStore, proxy: FaultyProxy) -> None:
    proxy.fail("^PUT ", DROPPED)
    with pytest.raises(BlobStoreUnavailable):
        store.put("a/b", BODY)
    store.put("a/b", BODY)
    with pytest.raises(BlobExists):
        store.put("a/b", memoryview(bytes(len(BODY))))
    assert read(store, "a/b") == BODY


def test_E143_the_same_put_many_times_at_once_stores_it_once_and_each_is_told_so(
    store: S3BlobStore, proxy: FaultyProxy, buckets: Buckets
) -> None:
    proxy.fail("^PUT ", DROPPED, times=3)
    retrying = RetryingBlobStore(store, RetryPolicy(window_seconds=120))
    failures: list[BaseException] = []

    def put(key: str) -> None:
        try:
            retrying.put(key, BODY[:5_000])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=put, args=(f"k/{number % 25}",)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    infos = list(store.list("k/"))
    assert {info.size_bytes for info in infos} == {5_000}
    assert len(infos) == 25
    assert all(read(store, info.key, 5_000) == BODY[:5_000] for info in infos)


def test_bytes_are_compared_where_the_store_keeps_no_checksum(
    new_store: Callable[..., S3BlobStore], proxy: FaultyProxy
) -> None:
    def without_checksum(exchange: Exchange) -> Reply:
        kept = {name: value for name, value in exchange.answer_headers.items() if "checksum" not in name}
        return Reply(headers=kept)

    proxy.fail("^HEAD ", without_checksum, times=FOREVER)
    store = new_store(StoreAbilities(None, False, True, False))
    store.put("a/b", BODY)
    store.put("a/b", BODY)
    with pytest.raises(BlobExists):
        store.put("a/b", memoryview(bytes(len(BODY))))


def test_E211_where_conditions_are_ignored_an_object_is_looked_up_before_it_is_put(
    new_store: Callable[..., S3BlobStore], proxy: FaultyProxy, buckets: Buckets
) -> None:
    proxy.fail("^PUT ", stored_whatever_it_says(buckets.server), times=FOREVER, forwards=False)
    store = new_store(StoreAbilities(None, False, False, False))
    store.put("a/b", BODY)
    store.put("a/b", BODY)
    with pytest.raises(BlobExists):
        store.put("a/b", memoryview(b"other"))
    assert read(store, "a/b") == BODY


@pytest.mark.parametrize("status", [409, 412])
def test_a_conflict_with_a_put_that_has_not_ended_may_be_tried_again(
    store: S3BlobStore, proxy: FaultyProxy, status: int
) -> None:
    proxy.fail("^PUT ", s3_error(status, "ConditionalRequestConflict"), forwards=False)
    with pytest.raises(BlobStoreUnavailable, match="under way"):
        store.put("a/b", BODY)
    store.put("a/b", BODY)


@pytest.mark.parametrize("cut_after", [0, 1, 100_000, 299_999])
@pytest.mark.parametrize("framing", ["length", "close"])
def test_E146_an_answer_that_ends_early_is_never_taken_for_whole(
    store: S3BlobStore, proxy: FaultyProxy, cut_after: int, framing: str
) -> None:
    store.put("a/b", BODY)
    proxy.fail("^GET ", Reply(cut_after=cut_after, framing=framing), times=2)
    with pytest.raises(BlobStoreUnavailable):
        read(store, "a/b")
    with pytest.raises(BlobStoreUnavailable):
        list(store.stream("a/b", 0, len(BODY), piece_bytes=70_000))
    assert read(store, "a/b") == BODY


def test_E146_a_stream_cut_again_and_again_goes_on_where_it_was(store: S3BlobStore, proxy: FaultyProxy) -> None:
    store.put("a/b", BODY)
    proxy.fail("^GET ", Reply(cut_after=50_000), times=4)
    retrying = RetryingBlobStore(store, RetryPolicy(first_delay_seconds=0.01))
    pieces = [bytes(piece) for piece in retrying.stream("a/b", 10, len(BODY) - 10, piece_bytes=7_001)]
    assert b"".join(pieces) == BODY[10:]


def test_another_range_than_asked_for_is_not_taken(store: S3BlobStore, proxy: FaultyProxy) -> None:
    store.put("a/b", BODY)
    proxy.fail("^GET ", Reply(206, {"content-range": "bytes 0-9/300000"}, bytes(10)))
    with pytest.raises(BlobStoreUnavailable, match="asked for bytes=5-14"):
        store.read_into("a/b", 5, memoryview(bytearray(10)))


def test_an_answer_that_never_comes_is_given_up(new_store: Callable[..., S3BlobStore], proxy: FaultyProxy) -> None:
    store, given_up = new_store(read_timeout_seconds=0.3), threading.Event()

    def wait(_: Exchange) -> Reply:
        given_up.wait(120)
        return Reply()

    proxy.fail("^PUT ", wait)
    started = time.monotonic()
    with pytest.raises(BlobStoreUnavailable, match="Timeout"):
        store.put("a/b", BODY)
    assert time.monotonic() - started < 60
    given_up.set()


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (slow_down(), BlobStoreUnavailable, "slow down"),
        (s3_error(503, "ServiceUnavailable"), BlobStoreUnavailable, "slow down"),
        (s3_error(429, "TooManyRequests"), BlobStoreUnavailable, "slow down"),
        (s3_error(500, "InternalError"), BlobStoreUnavailable, "status 500"),
        (Reply(502, {}, b"<html>bad gateway</html>"), BlobStoreUnavailable, "502"),
        (s3_error(400, "RequestTimeout"), BlobStoreUnavailable, "RequestTimeout"),
        (s3_error(400, "BadDigest"), BlobStoreUnavailable, "damaged"),
        (s3_error(507, "InsufficientStorage"), BlobStoreFull, "no space"),
        (s3_error(403, "QuotaExceeded"), BlobStoreFull, "quota"),
        (s3_error(507, "XMinioStorageFull"), BlobStoreFull, "no space"),
        (s3_error(403, "AccessDenied"), BlobStoreRefused, "lack s3:PutObject on bucket shardkeep-test-"),
        (s3_error(403, "InvalidAccessKeyId"), BlobStoreRefused, "ACCESS_KEY_ID"),
        (s3_error(404, "NoSuchBucket"), BlobStoreRefused, "does not exist"),
        (s3_error(301, "PermanentRedirect", x_amz_bucket_region="eu-west-9"), BlobStoreRefused, "in eu-west-9"),
        (s3_error(501, "NotImplemented", "no such header"), BlobStoreRefused, "no such header"),
        (DROPPED, BlobStoreUnavailable, "no whole answer"),
    ],
)
def test_each_kind_of_failure_is_one_of_the_stores_errors_and_says_what_to_do(
    store: S3BlobStore, proxy: FaultyProxy, answer: Reply, kind: type[Exception], words: str
) -> None:
    proxy.fail(".", answer, times=FOREVER, forwards=False)
    with pytest.raises(kind, match=r"PutObject shardkeep-test-.*/a/b") as caught:
        store.put("a/b", BODY)
    assert words in str(caught.value)
    assert caught.value.__cause__ is not None


def test_how_long_the_store_asks_to_be_left_alone_is_told(store: S3BlobStore, proxy: FaultyProxy) -> None:
    proxy.fail("^PUT ", slow_down("7"), forwards=False)
    with pytest.raises(BlobStoreUnavailable) as caught:
        store.put("a/b", BODY)
    assert caught.value.throttled
    assert caught.value.retry_after_seconds == 7


def test_an_endpoint_that_is_not_there_is_unavailable(new_store: Callable[..., S3BlobStore]) -> None:
    with pytest.raises(BlobStoreUnavailable, match="EndpointConnectionError"):
        new_store(endpoint_url="http://127.0.0.1:1").size("a")


@pytest.mark.parametrize("minutes", [-20, 20])
def test_E148_a_machine_whose_clock_is_wrong_signs_by_the_stores_time_after_one_refusal(
    new_store: Callable[..., S3BlobStore], proxy: FaultyProxy, minutes: int
) -> None:
    clock = StoreClock(lambda: time.time() + 60 * minutes)
    store = new_store(clock=clock)
    store.put("a/b", BODY)
    assert [exchange.status for exchange in proxy.exchanges] == [403, 200]
    assert clock.correction_seconds == pytest.approx(-60 * minutes, abs=60)
    assert read(store, "a/b") == BODY
    assert [exchange.status for exchange in proxy.exchanges] == [403, 200, 206]


def test_E148_requests_that_wait_for_their_turn_are_signed_when_they_are_sent(
    new_store: Callable[..., S3BlobStore], proxy: FaultyProxy
) -> None:
    moment = [time.time()]
    store = new_store(clock=StoreClock(lambda: moment[0]))
    proxy.fail("^PUT ", slow_down(), times=1, forwards=False)
    retrying = RetryingBlobStore(store, sleep=lambda _: moment.__setitem__(0, moment[0] + 200))
    retrying.put("a/b", BODY)
    dates = [exchange.headers["x-amz-date"] for exchange in proxy.exchanges]
    assert dates[0] != dates[1]


def test_a_refusal_whose_time_is_ours_is_not_tried_again(store: S3BlobStore, proxy: FaultyProxy) -> None:
    now = format_datetime(datetime.now(UTC), usegmt=True)
    proxy.fail("^PUT ", s3_error(403, "AccessDenied", date=now), forwards=False)
    with pytest.raises(BlobStoreRefused):
        store.put("a/b", BODY)
    assert len(proxy.exchanges) == 1


def _page(keys: Sequence[str], *, following: str | None) -> Reply:
    """A page of a list; `following` None is the last."""
    contents = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    end = "<IsTruncated>false</IsTruncated>"
    if following is not None:
        token = f"<NextContinuationToken>{following}</NextContinuationToken>" if following else ""
        end = f"<IsTruncated>true</IsTruncated>{token}"
    namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
    return Reply(200, {}, f'<ListBucketResult xmlns="{namespace}">{contents}{end}</ListBucketResult>'.encode())


def test_more_objects_than_one_page_holds_are_all_listed(buckets: Buckets) -> None:
    store = buckets.new_store()
    keys = [f"k/{number:04}" for number in range(1003)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, memoryview(b"x")), keys))
    assert [info.key for info in store.list("k/")] == keys
    assert [info.key for info in store.list("k/", after=keys[500])] == keys[501:]
    store.delete(keys)
    assert list(store.list("")) == []


@pytest.mark.parametrize("empty_pages", [1, 3])
def test_E156_pages_without_a_key_are_followed_to_the_end(
    new_store: Callable[..., S3BlobStore], proxy: FaultyProxy, empty_pages: int
) -> None:
    store = new_store(prefix="p")
    proxy.fail("list-type=2", _page(["p/k/1"], following="t0"), forwards=False)
    for number in range(empty_pages):
        pattern = rf"continuation-token=t{number}(&| |$)"
        proxy.fail(pattern, _page([], following=f"t{number + 1}"), forwards=False)
    proxy.fail(rf"continuation-token=t{empty_pages}(&| |$)", _page(["p/k/2"], following=None), forwards=False)
    assert [info.key for info in store.list("k/")] == ["k/1", "k/2"]
    assert proxy.count("list-type=2") == empty_pages + 2


@pytest.mark.parametrize("following", ["", "t0"])
def test_a_list_that_does_not_say_how_it_goes_on_is_an_error_and_not_an_end(
    store: S3BlobStore, proxy: FaultyProxy, following: str
) -> None:
    proxy.fail("list-type=2", _page([], following=following), times=FOREVER, forwards=False)
    with pytest.raises(BlobStoreUnavailable, match="does not say how it goes on"):
        list(store.list(""))


def test_a_list_that_breaks_off_goes_on_after_what_came(store: S3BlobStore, proxy: FaultyProxy) -> None:
    keys = [f"k/{number}" for number in range(6)]
    for key in keys:
        store.put(key, memoryview(b"x"))
    proxy.fail("list-type=2", slow_down(), times=1, forwards=False)
    proxy.fail("list-type=2", DROPPED, times=1)
    retrying = RetryingBlobStore(store, RetryPolicy(first_delay_seconds=0.01))
    assert [info.key for info in retrying.list("k/")] == keys


def test_an_absent_object_is_missing_and_not_a_failure(store: S3BlobStore) -> None:
    with pytest.raises(BlobMissing):
        read(store, "never")
