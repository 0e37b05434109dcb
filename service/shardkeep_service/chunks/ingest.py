"""Ingest: an uploaded chunk is verified, then stored, and only then has a row.

A crash between storing and the row leaves an object that nothing names, which collection finds. The same upload
repeated finds the same key and the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.orm import Session

from shardkeep.format.chunks import chunk_ref
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access.principal import Principal
from shardkeep_service.blob_store.errors import BlobExists
from shardkeep_service.checkpoints.sessions import renew
from shardkeep_service.checkpoints.write_batch import WriteBatch
from shardkeep_service.chunks import repository
from shardkeep_service.chunks.healing import release_healed_checkpoints
from shardkeep_service.chunks.models import Chunk, ChunkState, Verification
from shardkeep_service.chunks.object_keys import chunk_key
from shardkeep_service.chunks.places import UploadPlace, not_open, upload_place
from shardkeep_service.errors import Refusal
from shardkeep_service.inserts import insert_if_absent
from shardkeep_service.moments import micros
from shardkeep_service.service_context import ServiceContext

_KEY_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Upload:
    """One PUT of a chunk, as declared: `crc64` has 16 hexadecimal digits, `rank` is whose session it renews."""

    place: UploadPlace
    digest: str
    crc64: str
    rank: int | None
    number: int
    """Counts the uploads of this digest in its project, this one included."""
    present: bool
    """Whether it is stored, live and verified already."""


@dataclass(frozen=True, slots=True)
class _Stored:
    upload: Upload
    size_bytes: int
    object_key: str | None
    """None when the bytes were present already and only the claim is renewed."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    new: bool
    healed: bool


class ChunkIngest:
    """Takes uploaded chunks. Thread-safe; one per application."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._records: WriteBatch[_Stored, _Recorded] = WriteBatch(context.database, self._record)

    def admit(self, principal: Principal, checkpoint_id: str, *, digest: str, crc64: str, rank: int | None) -> Upload:
        """What the upload will be; refuses it before a byte is read when it could not be taken.

        A finished checkpoint takes only repetitions: chunks that are present.
        """
        with self._context.database.read() as session:
            place = upload_place(session, principal, checkpoint_id)
            row = repository.row_of(session, place.project_id, digest)
        present = row is not None and row.state == ChunkState.STORED and row.verification == Verification.VERIFIED
        if not place.takes_chunks and not present:
            raise not_open(place)
        return Upload(place, digest, crc64, rank, number=(row.uploads if row else 0) + 1, present=present)

    def verify(self, upload: Upload, body: memoryview) -> None:
        """Refuses bytes that are not what they are called. Takes about 0.5 s of CPU a gigabyte."""
        found = chunk_ref([body])
        if f"{found.crc64:016x}" != upload.crc64:
            raise Refusal(
                ErrorCode.CHECKSUM_MISMATCH,
                f"chunk {upload.digest} arrived with checksum {found.crc64:016x} instead of {upload.crc64}: damaged on"
                " the way; nothing was stored, send it again",
            )
        if found.digest != upload.digest:
            raise Refusal(
                ErrorCode.DIGEST_MISMATCH,
                f"the bytes sent as chunk {upload.digest} have the digest {found.digest}; nothing was stored, send it"
                " again",
            )

    def store(self, upload: Upload, body: memoryview) -> bool:
        """Keeps verified bytes durably and records them; says whether they are new."""
        key = None if upload.present else self._put(upload, body)
        recorded = self._records.submit(_Stored(upload, len(body), key))
        if recorded.healed:
            release_healed_checkpoints(self._context, upload.place.project_id)
        return recorded.new

    def _put(self, upload: Upload, body: memoryview) -> str:
        for number in range(upload.number, upload.number + _KEY_TRIES):
            key = chunk_key(
                project_id=upload.place.project_id,
                checkpoint_id=upload.place.checkpoint_id,
                digest=upload.digest,
                upload=number,
            )
            try:
                self._context.blob_store.put(key, body, crc64=int(upload.crc64, 16))
            except BlobExists:  # what lies there was damaged, or it could not differ
                continue
            return key
        raise Refusal(ErrorCode.INTERNAL, f"no unused object key was found for chunk {upload.digest}")

    def _record(self, session: Session, stored: Sequence[_Stored]) -> list[_Recorded | Refusal]:
        now = self._context.database.now(session)
        recorded = [_outcome(session, item, now) for item in stored]
        lease_until = now + micros(self._context.settings.lease_seconds)
        for checkpoint_id, ranks in _ranks_by_checkpoint(stored).items():
            renew(session, checkpoint_id, ranks, lease_until=lease_until)
        return recorded


def _outcome(session: Session, stored: _Stored, now: int) -> _Recorded | Refusal:
    try:
        return _record_one(session, stored, now)
    except Refusal as refusal:
        return refusal


def _record_one(session: Session, stored: _Stored, now: int) -> _Recorded:
    if stored.object_key is not None and insert_if_absent(session, Chunk, _row(stored, now)):
        return _Recorded(new=True, healed=False)
    upload = stored.upload
    row = repository.locked_row_of(session, upload.place.project_id, upload.digest)
    if row is None or stored.object_key is None:
        return _claim(session, row, now)
    if row.state == ChunkState.STORED and row.verification == Verification.VERIFIED:
        return _claim(session, row, now)  # another upload was first; our object is a stray, or the very same one
    healed = row.state in (ChunkState.QUARANTINED, ChunkState.LOST)
    row.object_key, row.uploads = stored.object_key, max(row.uploads + 1, upload.number)
    row.size_bytes, row.crc64 = stored.size_bytes, upload.crc64
    row.state, row.verification = ChunkState.STORED.value, Verification.VERIFIED.value
    row.claimed_at = row.stored_at = row.verified_at = now
    session.flush()
    return _Recorded(new=True, healed=healed)


def _claim(session: Session, row: Chunk | None, now: int) -> _Recorded:
    """Renews the claim of a chunk that is stored; one that went away meanwhile must be sent again."""
    if row is None or row.state != ChunkState.STORED:
        raise Refusal(
            ErrorCode.BUSY, "the stored chunk went away while it was sent again; repeat", retry_after_seconds=1.0
        )
    repository.claim(session, [row.id], now)
    return _Recorded(new=False, healed=False)


def _row(stored: _Stored, now: int) -> dict[str, object]:
    upload = stored.upload
    return {
        "project_id": upload.place.project_id,
        "digest": upload.digest,
        "size_bytes": stored.size_bytes,
        "crc64": upload.crc64,
        "object_key": stored.object_key,
        "state": ChunkState.STORED.value,
        "verification": Verification.VERIFIED.value,
        "origin_run_id": upload.place.run_id,
        "origin_checkpoint_id": upload.place.checkpoint_id,
        "claimed_at": now,
        "stored_at": now,
        "verified_at": now,
        "uploads": upload.number,
    }


def _ranks_by_checkpoint(stored: Sequence[_Stored]) -> dict[str, set[int]]:
    ranks: dict[str, set[int]] = {}
    for item in stored:
        if item.upload.rank is not None:
            ranks.setdefault(item.upload.place.checkpoint_id, set()).add(item.upload.rank)
    return ranks
