"""Our SigV4 query signatures are botocore's, for the same inputs; and say what they do not sign."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, RefreshableCredentials
from pydantic import SecretStr

from shardkeep_service.blob_store.errors import BlobStoreRefused
from shardkeep_service.blob_store.presigner import SignedRequest
from shardkeep_service.blob_store.s3.opening import open_s3
from shardkeep_service.blob_store.s3.presigner import S3Presigner
from shardkeep_service.blob_store.s3.settings import S3Settings
from shardkeep_service.blob_store.s3.signing import LIFETIME_LIMIT_SECONDS, SigningCredentials, UrlSigner
from shardkeep_service.blob_store.s3.store_clock import StoreClock

NOW = datetime(2026, 11, 30, 7, 8, 9, tzinfo=UTC)
KEY = "prj_1/chunks/ab/ckp_ab/0123.1"
TOKEN = "FwoGZXIvYXdzE+/=token"


@pytest.fixture(autouse=True)
def _at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: NOW.replace(tzinfo=None))


def settings(**changed: Any) -> S3Settings:
    known: dict[str, Any] = {
        "bucket": "checkpoints",
        "access_key_id": "AKIA/EXAMPLE",
        "secret_access_key": SecretStr("wJalr/XUtn+EXAMPLE"),
        "region": "eu-central-1",
    }
    return S3Settings(**{**known, **changed})


def presigner(chosen: S3Settings) -> S3Presigner:
    return open_s3(chosen, storage_threads=1, clock=StoreClock(NOW.timestamp)).presigner


def signed_by_botocore(chosen: S3Settings, request: SignedRequest, lifetime_seconds: int) -> str:
    """The URL that botocore signs for the same method, address and headers."""
    secret, token = chosen.secret_access_key, chosen.session_token
    assert chosen.access_key_id is not None
    assert secret is not None
    credentials = Credentials(
        chosen.access_key_id, secret.get_secret_value(), token.get_secret_value() if token else None
    )
    unsigned = AWSRequest(request.method, request.url.partition("?")[0], headers=request.headers)
    botocore.auth.S3SigV4QueryAuth(credentials, "s3", chosen.region, expires=lifetime_seconds).add_auth(unsigned)
    return str(unsigned.url)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"prefix": "teams/vision"},
        {"session_token": SecretStr(TOKEN)},
        {"addressing_style": "path"},
        {"addressing_style": "virtual"},
        {"endpoint_url": "http://seaweed:8333"},
        {"endpoint_url": "https://minio.example.com:443", "prefix": "p"},
        {"endpoint_url": "http://minio.example.com:80"},
        {"endpoint_url": "https://s3.example.com/gateway/v1/", "addressing_style": "path"},
        {"endpoint_url": "http://minio:9000", "addressing_style": "virtual"},
        {"endpoint_url": "http://minio:9000", "public_endpoint_url": "https://s3.example.com"},
        {"sse": "AES256", "expected_bucket_owner": "123456789012"},
        {"sse": "aws:kms", "sse_kms_key_id": "arn:aws:kms:eu-central-1:1:key/2"},
    ],
)
def test_signatures_are_those_of_botocore(changed: dict[str, Any]) -> None:
    chosen = settings(**changed)
    put = presigner(chosen).put(KEY, size_bytes=33_554_432, crc64=0x0123456789ABCDEF, lifetime_seconds=900)
    get = presigner(chosen).get(KEY, lifetime_seconds=60)
    assert parse_qs(urlsplit(put.url).query) == parse_qs(urlsplit(signed_by_botocore(chosen, put, 900)).query)
    assert parse_qs(urlsplit(get.url).query) == parse_qs(urlsplit(signed_by_botocore(chosen, get, 60)).query)


def test_urls_are_those_of_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    for changed in ({}, {"prefix": "p"}, {"endpoint_url": "http://minio:9000"}, {"addressing_style": "path"}):
        chosen = settings(**changed)
        parts = open_s3(chosen, storage_threads=1, clock=StoreClock(NOW.timestamp))
        get = parts.presigner.get(KEY, lifetime_seconds=60)
        theirs = parts.connection.client.generate_presigned_url(
            "get_object", {"Bucket": "checkpoints", "Key": chosen.prefix + KEY}, ExpiresIn=60
        )
        assert get.url.partition("?")[0] == theirs.partition("?")[0]


def test_a_put_signs_size_checksum_condition_and_what_the_settings_ask_for() -> None:
    chosen = settings(sse="aws:kms", sse_kms_key_id="key-1", expected_bucket_owner="123456789012")
    put = presigner(chosen).put(KEY, size_bytes=5, crc64=1, lifetime_seconds=900)
    assert put.method == "PUT"
    assert put.headers == {
        "content-length": "5",
        "if-none-match": "*",
        "x-amz-checksum-crc64nvme": "AAAAAAAAAAE=",
        "x-amz-expected-bucket-owner": "123456789012",
        "x-amz-server-side-encryption": "aws:kms",
        "x-amz-server-side-encryption-aws-kms-key-id": "key-1",
    }
    signed = parse_qs(urlsplit(put.url).query)["X-Amz-SignedHeaders"][0].split(";")
    assert signed == sorted([*put.headers, "host"])
    assert put.expires_at == NOW + timedelta(seconds=900)


def test_a_get_leaves_the_range_to_the_client() -> None:
    get = presigner(settings()).get(KEY, lifetime_seconds=60)
    assert (get.method, get.headers) == ("GET", {})
    assert parse_qs(urlsplit(get.url).query)["X-Amz-SignedHeaders"] == ["host"]


def test_the_public_endpoint_is_in_the_urls_and_the_internal_one_is_not() -> None:
    chosen = settings(endpoint_url="http://seaweed:8333", public_endpoint_url="https://s3.example.com")
    assert presigner(chosen).get(KEY, lifetime_seconds=60).url.startswith(f"https://s3.example.com/checkpoints/{KEY}?")


def test_the_signing_key_follows_the_day_and_the_credentials() -> None:
    held = [SigningCredentials("one", "secret-one")]
    signer = UrlSigner("http://host/b", region="r", find_credentials=lambda: held[0])

    def url(at: datetime) -> str:
        return signer.url("GET", "k", headers={}, lifetime_seconds=60, now=at.timestamp())

    def fresh(at: datetime) -> str:
        other = UrlSigner("http://host/b", region="r", find_credentials=lambda: held[0])
        return other.url("GET", "k", headers={}, lifetime_seconds=60, now=at.timestamp())

    tomorrow = NOW + timedelta(days=1)
    assert url(NOW) == fresh(NOW)
    assert url(tomorrow) == fresh(tomorrow)
    held[0] = SigningCredentials("two", "secret-two", "token")
    assert url(tomorrow) == fresh(tomorrow)
    assert "X-Amz-Credential=two%2F" in url(tomorrow)


@pytest.mark.parametrize("lifetime_seconds", [0, -1, LIFETIME_LIMIT_SECONDS + 1])
def test_a_lifetime_that_no_store_takes_is_refused(lifetime_seconds: int) -> None:
    with pytest.raises(ValueError, match="lives"):
        presigner(settings()).get(KEY, lifetime_seconds=lifetime_seconds)


@pytest.mark.parametrize("key", ["../x", "a b", "A", ""])
def test_only_keys_are_signed(key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        presigner(settings()).get(key, lifetime_seconds=60)


def test_a_url_does_not_outlive_the_credentials_of_a_role() -> None:
    ends = datetime.now(UTC) + timedelta(seconds=400)
    held = RefreshableCredentials(
        "id", "secret", "token", ends, refresh_using=_never, method="test", advisory_timeout=0, mandatory_timeout=0
    )
    role = S3Presigner(settings(), endpoint_url="https://s3.example.com", credentials=held, clock=StoreClock())
    request = role.get(KEY, lifetime_seconds=900)
    assert timedelta(seconds=60) < request.expires_at - datetime.now(UTC) < timedelta(seconds=400)


def _never() -> dict[str, str]:
    raise AssertionError("asked for new credentials")


def test_without_credentials_nothing_is_signed() -> None:
    nobody = S3Presigner(settings(), endpoint_url="https://s3.example.com", credentials=None, clock=StoreClock())
    with pytest.raises(BlobStoreRefused, match="ACCESS_KEY_ID"):
        nobody.get(KEY, lifetime_seconds=60)


def test_requests_are_signed_by_the_stores_clock() -> None:
    clock = StoreClock(lambda: NOW.timestamp() - 1200)
    assert clock.follow("Mon, 30 Nov 2026 07:08:09 GMT")
    parts = open_s3(settings(), storage_threads=1, clock=clock)
    request = parts.presigner.get(KEY, lifetime_seconds=60)
    assert parse_qs(urlsplit(request.url).query)["X-Amz-Date"] == ["20261130T070809Z"]
    assert request.expires_at == NOW + timedelta(seconds=60)
