"""The probe: finds out what an S3 store really does by sending it wrong requests, and writes nothing that stays.

What a store says of itself is not asked. A feature counts as there only if the right request was taken and the wrong
one refused.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from shardkeep_service.blob_store.errors import (
    BlobExists,
    BlobMissing,
    BlobStoreError,
    BlobStoreRefused,
    BlobStoreUnavailable,
)
from shardkeep_service.blob_store.findings import Finding, Level
from shardkeep_service.blob_store.presigner import Checksum, StoreAbilities
from shardkeep_service.blob_store.s3.bucket_rules import examine_bucket_rules
from shardkeep_service.blob_store.s3.checksums import checksum_parameters
from shardkeep_service.blob_store.s3.connection import S3Connection
from shardkeep_service.blob_store.s3.presigned_probe import PresignedProbe
from shardkeep_service.blob_store.s3.store import S3BlobStore, put_parameters
from shardkeep_service.blob_store.s3.store_clock import TOLERATED_SKEW_SECONDS

PROBE_PREFIX: Final = "probe/"
"""Objects of probes begin with it; what a probe that was killed left behind may be deleted at any time."""
_BODY_BYTES: Final = 4_096
_RACERS: Final = 3
_RACES: Final = 3
_UNKNOWN: Final = StoreAbilities(create_only=False)


@dataclass(slots=True)
class ProbeReport:
    """The abilities found, and a finding for each thing tried."""

    abilities: StoreAbilities | None = None
    """None when the store cannot be used at all; the last finding says why."""
    findings: list[Finding] = field(default_factory=list)

    def say(self, name: str, level: Level, detail: str, advice: str = "") -> None:
        """Adds a finding."""
        self.findings.append(Finding(name, level, detail, advice))


def probe(connection: S3Connection) -> ProbeReport:
    """Tries the store out, some 40 small requests. A store that does not answer is `BlobStoreUnavailable`."""
    return _Probe(connection).run()


class _Probe:
    def __init__(self, connection: S3Connection) -> None:
        self._connection = connection
        self._client = connection.client
        self._folder = f"{PROBE_PREFIX}{secrets.token_hex(8)}/"
        self._store = S3BlobStore(connection, lambda: _UNKNOWN)
        self._report = ProbeReport()
        self._body = memoryview(os.urandom(_BODY_BYTES))
        self._other = memoryview(os.urandom(_BODY_BYTES))
        self._made = 0

    def run(self) -> ProbeReport:
        report = self._report
        try:
            if not self._reads_what_was_written():
                return report
            checksum = self._verified_checksum()
            create_only = self._is_create_only()
            presigned = PresignedProbe(self._connection, self._folder, report.findings).run()
            self._deletes()
        finally:
            self._remove_all()
        versioned = examine_bucket_rules(self._connection, report.findings)
        self._judge_clock()
        report.abilities = StoreAbilities(
            checksum=checksum,
            presigned_checksum_enforced=presigned.checksum_enforced,
            create_only=create_only,
            presigned_create_only=presigned.create_only,
            versioned=versioned,
        )
        return report

    def _reads_what_was_written(self) -> bool:
        key = self._new_key()
        steps: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
            ("bucket", "it exists", lambda _: self._bucket_exists()),
            ("put", "an object of 4 KiB was stored", self._stored),
            ("head", "its size is right", lambda key: self._store.size(key) == _BODY_BYTES),
            ("get", "its bytes came back", lambda key: self._read(key, 0, _BODY_BYTES) == self._body),
            ("range", "a range of it came back", lambda key: self._read(key, 100, 50) == self._body[100:150]),
            ("list", "it is in the list at once", lambda _: self._listed(key)),
        )
        return all(self._step(name, detail, key, step) for name, detail, step in steps)

    def _step(self, name: str, detail: str, key: str, step: Callable[[str], bool]) -> bool:
        try:
            right = step(key)
        except BlobStoreUnavailable:
            raise
        except BlobStoreError as error:
            self._report.say(name, Level.FAIL, str(error), "see docs/storage.md for the permissions that are needed")
            return False
        if not right:
            detail, advice = f"not so: {detail}", "this store cannot be used; report it with its name and version"
            self._report.say(name, Level.FAIL, detail, advice)
            return False
        self._report.say(name, Level.OK, detail)
        return True

    def _bucket_exists(self) -> bool:
        """Asked for by itself: some stores make a missing bucket at the first PUT."""
        try:
            self._connection.call("ListBucket", self._client.head_bucket)
        except BlobMissing as exc:
            name = self._connection.bucket
            raise BlobStoreRefused(
                f"bucket {name} does not exist; make it, or correct SHARDKEEP_SERVICE_S3_BUCKET"
            ) from exc
        return True

    def _stored(self, key: str) -> bool:
        self._put_object(key, self._body, {})
        return True

    def _read(self, key: str, offset: int, length: int) -> memoryview:
        out = memoryview(bytearray(length))
        self._store.read_into(key, offset, out)
        return out

    def _listed(self, key: str) -> bool:
        return any(info.key == key and info.size_bytes == _BODY_BYTES for info in self._store.list(self._folder))

    def _verified_checksum(self) -> Checksum | None:
        candidates: tuple[Checksum, ...] = ("crc64nvme", "crc32c")
        for checksum in candidates:
            taken = self._put(self._new_key(), self._body, checksum_parameters(checksum, self._body, None))
            refused = not self._put(self._new_key(), self._body, checksum_parameters(checksum, self._other, None))
            if taken and refused:
                self._report.say("checksum", Level.OK, f"a PUT with a wrong {checksum} is refused")
                return checksum
        detail = "neither CRC64NVME nor CRC32C of a PUT is verified"
        advice = "bytes that change on the way to the store are found only when they are read; use TLS to it"
        self._report.say("checksum", Level.WARN, detail, advice)
        return None

    def _is_create_only(self) -> bool:
        key = self._new_key()
        condition = {"IfNoneMatch": "*"}
        first = self._put(key, self._body, condition)
        second = self._put(key, self._other, condition)
        if not first or second or self._read(key, 0, _BODY_BYTES) != self._body:
            self._report.say(
                "create_only",
                Level.WARN,
                "a PUT with If-None-Match: * " + ("is refused" if not first else "replaces an object"),
                "the database still decides every commit; a store that honours conditions adds a second guard",
            )
            return False
        won = [self._race() for _ in range(_RACES)]
        if any(count != 1 for count in won):
            detail = f"of {_RACERS} PUTs at once with If-None-Match: * more or less than one won: {won}"
            self._report.say("create_only", Level.WARN, detail, "upgrade the store; the database decides every commit")
            return False
        self._report.say("create_only", Level.OK, "a PUT with If-None-Match: * replaces nothing, races included")
        return True

    def _race(self) -> int:
        """How many of the PUTs at once of different bodies were taken; -1 when a loser's body is what is there."""
        key = self._new_key()
        bodies = [memoryview(os.urandom(_BODY_BYTES)) for _ in range(_RACERS)]
        with ThreadPoolExecutor(_RACERS) as pool:
            taken = list(pool.map(lambda body: self._put(key, body, {"IfNoneMatch": "*"}), bodies))
        if taken.count(True) == 1 and self._read(key, 0, _BODY_BYTES) != bodies[taken.index(True)]:
            return -1
        return taken.count(True)

    def _put(self, key: str, body: memoryview, parameters: Any) -> bool:
        """Whether the store took it; a refusal for whatever reason is no."""
        try:
            self._put_object(key, body, parameters)
        except (BlobExists, BlobStoreRefused):
            return False
        except BlobStoreUnavailable as error:
            if error.damaged:
                return False
            raise
        return True

    def _put_object(self, key: str, body: memoryview, parameters: Any) -> None:
        self._connection.call(
            "PutObject",
            self._client.put_object,
            what=key,
            Key=self._connection.settings.prefix + key,
            Body=bytes(body),
            **put_parameters(self._connection.settings),
            **parameters,
        )

    def _deletes(self) -> None:
        keys = [info.key for info in self._store.list(self._folder)]
        try:
            self._store.delete([*keys, f"{self._folder}never"])
            left = [info.key for info in self._store.list(self._folder)]
        except BlobStoreUnavailable:
            raise
        except BlobStoreError as error:
            self._report.say("delete", Level.FAIL, str(error), "collection needs s3:DeleteObject; see docs/storage.md")
            return
        if left or any(self._store.size(key) is not None for key in keys[:1]):
            self._report.say("delete", Level.FAIL, "objects are still there after a delete", "see bucket rules")
            return
        self._report.say("delete", Level.OK, "objects deleted are gone at once, absent ones are fine")

    def _remove_all(self) -> None:
        try:
            self._store.delete([info.key for info in self._store.list(self._folder)])
        except BlobStoreError:
            return  # said already by the step that failed; they may be deleted at any time

    def _judge_clock(self) -> None:
        answer = self._connection.call("ListBucket", self._client.list_objects_v2, what=self._folder, MaxKeys=1)
        skew = self._connection.clock.skew_of(answer["ResponseMetadata"]["HTTPHeaders"].get("date"))
        if skew is None:
            self._report.say(
                "clock", Level.WARN, "the store's answers carry no date", "keep this machine's clock right"
            )
        elif abs(skew) > TOLERATED_SKEW_SECONDS:
            self._connection.clock.follow(answer["ResponseMetadata"]["HTTPHeaders"].get("date"))
            detail = f"this machine's clock is {-skew:+.0f} s off the store's; requests are signed by the store's"
            self._report.say("clock", Level.WARN, detail, "set the clock of this machine (NTP)")
        else:
            self._report.say("clock", Level.OK, f"within {max(1.0, abs(skew)):.0f} s of the store's")

    def _new_key(self) -> str:
        self._made += 1
        return f"{self._folder}{self._made}"
