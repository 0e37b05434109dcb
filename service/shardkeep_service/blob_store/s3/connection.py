"""The boto3 client of one bucket: made once for all threads, with retries, checksums and signing as we want them.

Retries are off in botocore: `RetryingBlobStore` does them, so that every store has the same, each try is measured, and
a put whose answer was lost is compared with what is there instead of being reported as a conflict.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
import botocore
from botocore.auth import S3SigV4Auth
from botocore.config import Config
from botocore.exceptions import ClientError

from shardkeep_service.blob_store.s3.bodies import send_memory
from shardkeep_service.blob_store.s3.error_mapping import headers_of, status_of, translated_errors
from shardkeep_service.blob_store.s3.settings import S3Settings
from shardkeep_service.blob_store.s3.store_clock import StoreClock

if TYPE_CHECKING:
    from botocore.credentials import Credentials
    from mypy_boto3_s3 import S3Client

Answer = TypeVar("Answer")
_AWS_TIME = "%Y%m%dT%H%M%SZ"


class S3Connection:
    """A client, the bucket it is for, what it signs with and the clock it signs by. Thread-safe."""

    def __init__(self, settings: S3Settings, *, connections: int, clock: StoreClock | None = None) -> None:
        assert settings.bucket is not None
        self.settings = settings
        self.bucket = settings.bucket
        self.clock = clock or StoreClock()
        session = _session(settings)
        self.credentials: Credentials | None = session.get_credentials()
        """Refreshed by botocore where they come from a role."""
        self.client: S3Client = session.client(
            "s3",
            region_name=settings.region,
            endpoint_url=settings.endpoint_url,
            verify=None if settings.ca_bundle is None else str(settings.ca_bundle),
            config=_config(settings, connections),
        )
        events = self.client.meta.events
        events.register_first("choose-signer.s3", _leave_signing_to_us)
        events.register("before-sign.s3.DeleteObjects", _add_md5)
        events.register_last("before-sign.s3", self._sign)
        events.register("before-send.s3", send_memory)

    @property
    def endpoint_url(self) -> str:
        """Where the client sends its requests."""
        return self.client.meta.endpoint_url

    def call(self, action: str, method: Callable[..., Answer], *, what: str = "", **parameters: Any) -> Answer:
        """One request; errors are the blob store's, and name `action` and `what`.

        It is signed again, by the store's time, if the store refused it and its time is far from ours.
        """
        if self.settings.expected_bucket_owner is not None:
            parameters["ExpectedBucketOwner"] = self.settings.expected_bucket_owner
        with translated_errors(action, bucket=self.bucket, what=what):
            try:
                return method(Bucket=self.bucket, **parameters)
            except ClientError as error:
                if status_of(error) != 403 or not self.clock.follow(headers_of(error).get("date")):
                    raise
            return method(Bucket=self.bucket, **parameters)

    def close(self) -> None:
        """Drops the connections."""
        self.client.close()

    def _sign(self, request: Any, *, region_name: str, **_: object) -> None:
        """For the event `before-sign`: signs just before sending, as botocore would but by the store's clock."""
        frozen = None if self.credentials is None else self.credentials.get_frozen_credentials()
        region = request.context.get("signing", {}).get("region") or region_name
        _StoreTimeAuth(frozen, region, self.clock).add_auth(request)


class _StoreTimeAuth(S3SigV4Auth):
    """botocore's signature, with the time of the store's clock in place of this machine's."""

    def __init__(self, credentials: Any, region: str, clock: StoreClock) -> None:
        super().__init__(credentials, "s3", region)
        self._clock = clock

    def _modify_request_before_signing(self, request: Any) -> None:
        moment = datetime.fromtimestamp(self._clock.now(), UTC)
        request.context["timestamp"] = moment.strftime(_AWS_TIME)
        super()._modify_request_before_signing(request)  # type: ignore[misc]  # the stubs leave it out


def _leave_signing_to_us(**_: object) -> Any:
    return botocore.UNSIGNED


def _add_md5(request: Any, **_: object) -> None:
    """Older stores know no other checksum of a DeleteObjects, which must have one; newer ones take both."""
    digest = hashlib.md5(request.body, usedforsecurity=False).digest()
    request.headers["Content-MD5"] = b64encode(digest).decode("ascii")


def _session(settings: S3Settings) -> boto3.session.Session:
    if settings.access_key_id is None or settings.secret_access_key is None:
        return boto3.session.Session()
    token = settings.session_token
    return boto3.session.Session(
        aws_access_key_id=settings.access_key_id,
        aws_secret_access_key=settings.secret_access_key.get_secret_value(),
        aws_session_token=None if token is None else token.get_secret_value(),
    )


def _config(settings: S3Settings, connections: int) -> Config:
    return Config(
        signature_version="s3v4",
        # Explicit checksums only: the trailers that botocore adds by default are refused by many stores.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=settings.max_connections or connections,
        connect_timeout=settings.connect_timeout_seconds,
        read_timeout=settings.read_timeout_seconds,
        tcp_keepalive=True,
        retries={"total_max_attempts": 1, "mode": "standard"},
        user_agent_extra="shardkeep",
        s3={
            "addressing_style": "virtual" if settings.virtual_hosts else "path",
            # The signed checksum header binds the body; hashing it once more would cost 1.2 CPU seconds a gigabyte.
            "payload_signing_enabled": False,
            "us_east_1_regional_endpoint": "regional",
        },
    )
