"""Presigned requests at a real store: taken as they were signed, refused in every other form."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import urllib3

from shardkeep_service.blob_store.presigner import SignedRequest
from shardkeep_service.blob_store.s3.checksums import crc64_of
from shardkeep_service.blob_store.s3.opening import S3Parts
from shardkeep_service.blob_store.s3.store_clock import StoreClock
from tests.integration.s3.buckets import Buckets

pytestmark = pytest.mark.s3
BODY = os.urandom(100_000)
OTHER = os.urandom(100_000)


@pytest.fixture
def parts(buckets: Buckets) -> S3Parts:
    return buckets.open(prefix=f"t{secrets.token_hex(6)}")


@pytest.fixture
def pool() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False) as connections:
        yield connections


def put_of(parts: S3Parts, key: str, body: bytes, *, lifetime_seconds: int = 60) -> SignedRequest:
    return parts.presigner.put(
        key, size_bytes=len(body), crc64=crc64_of(memoryview(body)), lifetime_seconds=lifetime_seconds
    )


def send(pool: urllib3.PoolManager, request: SignedRequest, body: bytes | None = None) -> tuple[int, bytes]:
    headers = {**request.headers} if body is None else {**request.headers, "content-length": str(len(body))}
    answer = pool.request(request.method, request.url, body=body, headers=headers, redirect=False)
    return answer.status, answer.data


def test_a_put_as_it_was_signed_is_taken_and_is_the_object(parts: S3Parts, pool: urllib3.PoolManager) -> None:
    assert send(pool, put_of(parts, "a/b", BODY), BODY)[0] == 200
    out = memoryview(bytearray(len(BODY)))
    parts.store.read_into("a/b", 0, out)
    assert out == BODY


def test_other_bytes_of_the_same_size_are_refused_and_leave_nothing(parts: S3Parts, pool: urllib3.PoolManager) -> None:
    assert send(pool, put_of(parts, "a/b", BODY), OTHER)[0] >= 400
    assert parts.store.size("a/b") is None


@pytest.mark.parametrize("sent", [BODY[:-1], BODY + b"x", b""])
def test_another_size_is_refused_and_leaves_nothing(parts: S3Parts, pool: urllib3.PoolManager, sent: bytes) -> None:
    assert send(pool, put_of(parts, "a/b", BODY), sent)[0] >= 400
    assert parts.store.size("a/b") is None


def test_a_second_put_is_refused_and_the_first_object_stays(parts: S3Parts, pool: urllib3.PoolManager) -> None:
    assert send(pool, put_of(parts, "a/b", BODY), BODY)[0] == 200
    assert send(pool, put_of(parts, "a/b", BODY), BODY)[0] == 412
    assert send(pool, put_of(parts, "a/b", OTHER), OTHER)[0] == 412
    out = memoryview(bytearray(len(BODY)))
    parts.store.read_into("a/b", 0, out)
    assert out == BODY


@pytest.mark.parametrize("left_out", ["if-none-match", "x-amz-checksum-crc64nvme"])
def test_a_signed_header_cannot_be_left_out(parts: S3Parts, pool: urllib3.PoolManager, left_out: str) -> None:
    request = put_of(parts, "a/b", BODY)
    headers = {name: value for name, value in request.headers.items() if name != left_out}
    assert send(pool, replace(request, headers=headers), BODY)[0] == 403
    assert parts.store.size("a/b") is None


def test_a_signature_holds_for_one_key_and_one_method(parts: S3Parts, pool: urllib3.PoolManager) -> None:
    request = put_of(parts, "a/b", BODY)
    assert send(pool, replace(request, url=request.url.replace("/a/b?", "/a/c?")), BODY)[0] == 403
    parts.store.put("a/b", memoryview(BODY))
    get = parts.presigner.get("a/b", lifetime_seconds=60)
    assert send(pool, replace(get, method="DELETE"))[0] == 403
    assert parts.store.size("a/b") == len(BODY)


def test_expired_requests_are_refused(buckets: Buckets, pool: urllib3.PoolManager) -> None:
    late = buckets.open(prefix="late", clock=StoreClock(lambda: time.time() - 120))
    late.store.put("there", memoryview(BODY))
    assert send(pool, put_of(late, "a/b", BODY, lifetime_seconds=60), BODY)[0] == 403
    assert send(pool, late.presigner.get("there", lifetime_seconds=60))[0] == 403
    assert late.store.size("a/b") is None


def test_a_get_gives_the_object_and_any_range_of_it(parts: S3Parts, pool: urllib3.PoolManager) -> None:
    parts.store.put("a/b", memoryview(BODY))
    request = parts.presigner.get("a/b", lifetime_seconds=60)
    assert send(pool, request) == (200, BODY)
    ranged = replace(request, headers={"range": "bytes=1000-1999"})
    assert send(pool, ranged) == (206, BODY[1000:2000])


def test_a_get_of_nothing_is_404(parts: S3Parts, pool: urllib3.PoolManager) -> None:
    assert send(pool, parts.presigner.get("never", lifetime_seconds=60))[0] == 404
