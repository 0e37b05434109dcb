"""Presigned requests for the objects of one bucket."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from shardkeep_service.blob_store.errors import BlobStoreRefused
from shardkeep_service.blob_store.keys import check_key
from shardkeep_service.blob_store.presigner import SignedRequest
from shardkeep_service.blob_store.s3.checksums import crc64_text
from shardkeep_service.blob_store.s3.settings import S3Settings
from shardkeep_service.blob_store.s3.signing import SigningCredentials, UrlSigner
from shardkeep_service.blob_store.s3.store_clock import StoreClock

if TYPE_CHECKING:
    from botocore.credentials import Credentials

_SHORTEST_SECONDS: Final = 60


class S3Presigner:
    """Implements `Presigner` for the bucket at `endpoint_url`, which is where the clients reach it."""

    def __init__(
        self, settings: S3Settings, *, endpoint_url: str, credentials: Credentials | None, clock: StoreClock
    ) -> None:
        self._prefix = settings.prefix
        self._credentials = credentials
        self._clock = clock
        self._put_headers = _put_headers(settings)
        self._get_headers = _owner_header(settings)
        self._signer = UrlSigner(
            bucket_url(settings, endpoint_url), region=settings.region, find_credentials=self._frozen
        )

    def put(self, key: str, *, size_bytes: int, crc64: int, lifetime_seconds: int) -> SignedRequest:
        """See Presigner."""
        headers = {
            "content-length": str(size_bytes),
            "if-none-match": "*",
            "x-amz-checksum-crc64nvme": crc64_text(crc64),
            **self._put_headers,
        }
        return self._signed("PUT", key, headers, lifetime_seconds)

    def get(self, key: str, *, lifetime_seconds: int) -> SignedRequest:
        """See Presigner."""
        return self._signed("GET", key, dict(self._get_headers), lifetime_seconds)

    def _signed(self, method: str, key: str, headers: dict[str, str], lifetime_seconds: int) -> SignedRequest:
        check_key(key)
        lifetime, now = self._possible_lifetime(lifetime_seconds), self._clock.now()
        url = self._signer.url(method, self._prefix + key, headers=headers, lifetime_seconds=lifetime, now=now)
        expires_at = datetime.fromtimestamp(int(now), UTC) + timedelta(seconds=lifetime)
        return SignedRequest(method, url, headers, expires_at)

    def _frozen(self) -> SigningCredentials:
        frozen = None if self._credentials is None else self._credentials.get_frozen_credentials()
        if frozen is None or not frozen.access_key or not frozen.secret_key:
            raise BlobStoreRefused("nothing to sign with; set SHARDKEEP_SERVICE_S3_ACCESS_KEY_ID and its secret")
        return SigningCredentials(frozen.access_key, frozen.secret_key, frozen.token)

    def _possible_lifetime(self, lifetime_seconds: int) -> int:
        """A signature made with a role's credentials ends with them."""
        refresh_needed = getattr(self._credentials, "refresh_needed", None)
        if refresh_needed is None:
            return lifetime_seconds
        while lifetime_seconds > _SHORTEST_SECONDS and refresh_needed(lifetime_seconds):
            lifetime_seconds = max(_SHORTEST_SECONDS, lifetime_seconds // 2)
        return lifetime_seconds


def bucket_url(settings: S3Settings, endpoint_url: str) -> str:
    """The URL below which the bucket's keys are."""
    parts = urlsplit(endpoint_url)
    if settings.virtual_hosts:
        return f"{parts.scheme}://{settings.bucket}.{parts.netloc}{parts.path.rstrip('/')}"
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/{settings.bucket}"


def _put_headers(settings: S3Settings) -> Mapping[str, str]:
    headers = dict(_owner_header(settings))
    if settings.sse is not None:
        headers["x-amz-server-side-encryption"] = settings.sse
    if settings.sse_kms_key_id is not None:
        headers["x-amz-server-side-encryption-aws-kms-key-id"] = settings.sse_kms_key_id
    return headers


def _owner_header(settings: S3Settings) -> Mapping[str, str]:
    if settings.expected_bucket_owner is None:
        return {}
    return {"x-amz-expected-bucket-owner": settings.expected_bucket_owner}
