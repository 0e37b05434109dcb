"""What the store does with presigned requests: the part of the probe that clients' direct uploads rest on."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Final

import urllib3

from shardkeep_service.blob_store.errors import BlobStoreUnavailable
from shardkeep_service.blob_store.findings import Finding, Level
from shardkeep_service.blob_store.presigner import SignedRequest
from shardkeep_service.blob_store.s3.checksums import crc64_of
from shardkeep_service.blob_store.s3.connection import S3Connection
from shardkeep_service.blob_store.s3.presigner import S3Presigner
from shardkeep_service.blob_store.s3.store_clock import StoreClock

_BODY_BYTES: Final = 4_096
_LIFETIME_SECONDS: Final = 120
_STREAM: Final = "uploads are streamed through the service instead; direct=always would be refused"


@dataclass(frozen=True, slots=True)
class PresignedAbilities:
    """See StoreAbilities."""

    checksum_enforced: bool
    create_only: bool


class PresignedProbe:
    """Sends presigned requests to the endpoint that the service itself uses; adds to `findings`."""

    def __init__(self, connection: S3Connection, folder: str, findings: list[Finding]) -> None:
        self._connection = connection
        self._folder = folder
        self._findings = findings
        self._pool = pool_of(connection)
        self._presigner = self._presigner_at(connection.clock)

    def run(self) -> PresignedAbilities:
        """Tries them all out."""
        body, other = os.urandom(_BODY_BYTES), os.urandom(_BODY_BYTES)
        request = self._put_request("presigned", body)
        try:
            refused_body = not self._sent(self._put_request("wrong-body", body), other)
            refused_size = not self._sent(self._put_request("wrong-size", body), body[:-1])
            taken = self._sent(request, body)
            refused_second = not self._sent(request, other) and not self._sent(
                self._put_request("presigned", other), other
            )
            came_back = taken and self._read("presigned", 10, 20) == body[10:30]
            refused_expired = not self._sent(self._expired_request(body), body)
        finally:
            self._pool.clear()
        self._judge(taken=taken, enforced=refused_body and refused_size, came_back=came_back)
        self._judge_create_only(refused_second)
        self._judge_expiry(refused_expired)
        return PresignedAbilities(taken and came_back and refused_body and refused_size, taken and refused_second)

    def _judge(self, *, taken: bool, enforced: bool, came_back: bool) -> None:
        if not taken or not came_back:
            what = "PUT" if not taken else "GET with a range"
            self._say("presigned", Level.WARN, f"a presigned {what} does not work", _STREAM)
        elif not enforced:
            self._say("presigned", Level.WARN, "a presigned PUT of other bytes than were signed is taken", _STREAM)
        else:
            self._say("presigned", Level.OK, "presigned PUTs take exactly the size and CRC64NVME that were signed")

    def _judge_create_only(self, refused: bool) -> None:
        if refused:
            self._say("presigned_create_only", Level.OK, "a presigned PUT replaces nothing")
        else:
            advice = "keys are never given out twice, so this is a second guard that lacks"
            self._say("presigned_create_only", Level.WARN, "a presigned PUT sent twice replaces its object", advice)

    def _judge_expiry(self, refused: bool) -> None:
        if refused:
            self._say("presigned_expiry", Level.OK, "an expired URL is refused")
        else:
            self._say("presigned_expiry", Level.FAIL, "an expired URL is taken", "do not give this store to clients")

    def _put_request(self, name: str, body: bytes) -> SignedRequest:
        return self._signed_put(self._presigner, name, body)

    def _expired_request(self, body: bytes) -> SignedRequest:
        clock = self._connection.clock
        past = StoreClock(lambda: clock.now() - 10 * _LIFETIME_SECONDS)
        return self._signed_put(self._presigner_at(past), "expired", body)

    def _signed_put(self, presigner: S3Presigner, name: str, body: bytes) -> SignedRequest:
        return presigner.put(
            f"{self._folder}{name}",
            size_bytes=len(body),
            crc64=crc64_of(memoryview(body)),
            lifetime_seconds=_LIFETIME_SECONDS,
        )

    def _presigner_at(self, clock: StoreClock) -> S3Presigner:
        connection = self._connection
        return S3Presigner(
            connection.settings, endpoint_url=connection.endpoint_url, credentials=connection.credentials, clock=clock
        )

    def _read(self, name: str, start: int, length: int) -> bytes:
        request = self._presigner.get(f"{self._folder}{name}", lifetime_seconds=_LIFETIME_SECONDS)
        ranged = replace(request, headers={**request.headers, "range": f"bytes={start}-{start + length - 1}"})
        status, body = self._send(ranged, None)
        return body if status == 206 else b""

    def _sent(self, request: SignedRequest, body: bytes) -> bool:
        headers = {**request.headers, "content-length": str(len(body))}
        status, _ = self._send(replace(request, headers=headers), body)
        return 200 <= status < 300

    def _send(self, request: SignedRequest, body: bytes | None) -> tuple[int, bytes]:
        try:
            answer = self._pool.request(request.method, request.url, body=body, headers=request.headers, redirect=False)
        except urllib3.exceptions.HTTPError as exc:
            raise BlobStoreUnavailable(f"a presigned {request.method} had no answer: {type(exc).__name__}") from exc
        if answer.status in (429, 500, 502, 503, 504):
            raise BlobStoreUnavailable(
                f"a presigned {request.method} was answered {answer.status}", throttled=answer.status in (429, 503)
            )
        return answer.status, answer.data

    def _say(self, name: str, level: Level, detail: str, advice: str = "") -> None:
        self._findings.append(Finding(name, level, detail, advice))


def pool_of(connection: S3Connection) -> urllib3.PoolManager:
    """Connections like those of clients, which trust what the settings trust."""
    settings = connection.settings
    return urllib3.PoolManager(
        retries=False,
        timeout=urllib3.Timeout(connect=settings.connect_timeout_seconds, read=settings.read_timeout_seconds),
        ca_certs=None if settings.ca_bundle is None else str(settings.ca_bundle),
    )
