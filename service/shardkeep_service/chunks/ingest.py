"""Ingest: a chunk that is uploaded through the service is verified, then stored, and only then is stored by its row.

A crash between storing and the row leaves an object that nothing names, which collection finds. The same upload
repeated finds the same key and the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.format.chunks import chunk_ref
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.quotas import Allowances, check_bytes
from shardkeep_service.blob_store.errors import BlobExists
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.checkpoints.sessions import renew
from shardkeep_service.checkpoints.write_batch import WriteBatch
from shardkeep_service.chunks import repository
from shardkeep_service.chunks.healing import release_healed_checkpoints
from shardkeep_service.chunks.models import Chunk, ChunkState, Verification
from shardkeep_service.chunks.object_keys import chunk_key
from shardkeep_service.chunks.places import UploadPlace, finished_meanwhile, not_open, upload_place
from shardkeep_service.chunks.reach import keep_proof
from shardkeep_service.errors import Refusal
from shardkeep_service.inserts import insert_if_absent
from shardkeep_service.moments import micros
from shardkeep_service.runs.lines import UNFINISHED
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
    for_one_run: bool = False
    """Whether the token sees one run only, see `reach.py`."""


@dataclass(frozen=True, slots=True)
class _Stored:
    upload: Upload
    size_bytes: int
    object_key: str | None
    """None when the bytes were present already and only the claim is renewed."""
    number: int
    """The `.n` of the key, which is never used again."""

    @property
    def lock_order(self) -> tuple[str, str]:
        """Transactions lock chunks in this order, so that two never wait for each other."""
        return self.upload.place.project_id, self.upload.digest


@dataclass(frozen=True, slots=True)
class _Recorded:
    new: bool
    healed: bool


class ChunkIngest:
    """Takes uploaded chunks. Thread-safe; one per application."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._records: WriteBatch[_Stored, _Recorded] = WriteBatch(context.database, self._record)

    def admit(
        self,
        principal: Principal,
        checkpoint_id: str,
        *,
        digest: str,
        crc64: str,
        rank: int | None,
        size_bytes: int = 0,
    ) -> Upload:
        """What the upload will be; refuses it before a byte is read when it could not be taken.

        A finished checkpoint takes only repetitions: chunks that are present.
        """
        with self._context.database.read() as session:
            place = upload_place(session, principal, checkpoint_id)
            row = repository.row_of(session, place.project_id, digest)
            if row is None:
                check_bytes(session, place.project_id, size_bytes)
        present = row is not None and row.state == ChunkState.STORED and row.verification == Verification.VERIFIED
        if not place.takes_chunks and not present:
            raise not_open(place)
        number = (row.uploads if row else 0) + 1
        for_one_run = principal.run_id is not None
        return Upload(place, digest, crc64, rank, number=number, present=present, for_one_run=for_one_run)

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
        key, number = (None, upload.number) if upload.present else self._put(upload, body)
        recorded = self._records.submit(_Stored(upload, len(body), key, number))
        if recorded.healed:
            release_healed_checkpoints(self._context, upload.place.project_id)
        return recorded.new

    def _put(self, upload: Upload, body: memoryview) -> tuple[str, int]:
        """Where the bytes are now, and the number in that key."""
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
            return key, number
        raise Refusal(ErrorCode.INTERNAL, f"no unused object key was found for chunk {upload.digest}")

    def _record(self, session: Session, stored: Sequence[_Stored]) -> list[_Recorded | Refusal]:
        now = self._context.database.now(session)
        allowances = Allowances(session, {item.upload.place.project_id for item in stored})
        taking = _taking_chunks(session, {item.upload.place.checkpoint_id for item in stored})
        in_order = sorted(range(len(stored)), key=lambda place: stored[place].lock_order)
        outcomes = {place: _outcome(session, stored[place], allowances, taking, now) for place in in_order}
        recorded = [outcomes[place] for place in range(len(stored))]
        lease_until = now + micros(self._context.settings.lease_seconds)
        for checkpoint_id, ranks in _ranks_by_checkpoint(stored).items():
            renew(session, checkpoint_id, ranks, lease_until=lease_until)
        allowances.settle()
        return recorded


def _taking_chunks(session: Session, checkpoint_ids: Collection[str]) -> set[str]:
    """Those that are still unfinished. A body may take longer to arrive and be stored than its checkpoint lives: what
    it left then is a stray, which collection may be removing, so no row may name it.
    """
    query = select(Checkpoint.id).where(Checkpoint.id.in_(checkpoint_ids), Checkpoint.state.in_(UNFINISHED))
    return set(session.scalars(query))


def _outcome(
    session: Session, stored: _Stored, allowances: Allowances, taking: Collection[str], now: int
) -> _Recorded | Refusal:
    place = stored.upload.place
    if stored.object_key is not None and place.checkpoint_id not in taking:
        return finished_meanwhile(place)
    try:
        return _record_one(session, stored, allowances, now)
    except Refusal as refusal:
        return refusal


def _record_one(session: Session, stored: _Stored, allowances: Allowances, now: int) -> _Recorded:
    upload = stored.upload
    project_id = upload.place.project_id
    if stored.object_key is not None:
        if allowances.is_limited(project_id) and repository.row_of(session, project_id, upload.digest) is None:
            allowances.check(project_id, stored.size_bytes)
        if insert_if_absent(session, Chunk, _row(stored, now)):
            allowances.add(project_id, stored.size_bytes)
            return _Recorded(new=True, healed=False)
    row = repository.locked_row_of(session, upload.place.project_id, upload.digest)
    if row is None or stored.object_key is None:
        return _claim(session, row, upload, now)
    if row.state == ChunkState.STORED and row.verification == Verification.VERIFIED:
        return _claim(session, row, upload, now)  # another upload was first: our object is a stray, or the very same
    healed = row.state in (ChunkState.QUARANTINED, ChunkState.LOST)
    row.object_key, row.uploads = stored.object_key, max(row.uploads + 1, stored.number)
    if row.state == ChunkState.PENDING:  # another checkpoint may be uploading it directly: it will find it stored
        row.origin_run_id, row.origin_checkpoint_id = upload.place.run_id, upload.place.checkpoint_id
    allowances.add(project_id, stored.size_bytes - row.size_bytes)
    row.size_bytes, row.crc64 = stored.size_bytes, upload.crc64
    row.state, row.verification = ChunkState.STORED.value, Verification.VERIFIED.value
    row.claimed_at = row.stored_at = row.verified_at = now
    _prove(session, row, upload)
    session.flush()
    return _Recorded(new=True, healed=healed)


def _claim(session: Session, row: Chunk | None, upload: Upload, now: int) -> _Recorded:
    """Renews the claim of a chunk that is stored; one that went away meanwhile must be sent again."""
    if row is None or row.state != ChunkState.STORED:
        raise Refusal(
            ErrorCode.BUSY, "the stored chunk went away while it was sent again; repeat", retry_after_seconds=1.0
        )
    _prove(session, row, upload)
    repository.claim(session, [row.id], now)
    return _Recorded(new=False, healed=False)


def _prove(session: Session, row: Chunk, upload: Upload) -> None:
    """The bytes were verified: a job may name them although another run had them first."""
    if upload.for_one_run and row.origin_run_id != upload.place.run_id:
        keep_proof(session, upload.place.checkpoint_id, row.id)


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
        "uploads": stored.number,
    }


def _ranks_by_checkpoint(stored: Sequence[_Stored]) -> dict[str, set[int]]:
    ranks: dict[str, set[int]] = {}
    for item in stored:
        if item.upload.rank is not None:
            ranks.setdefault(item.upload.place.checkpoint_id, set()).add(item.upload.rank)
    return ranks
