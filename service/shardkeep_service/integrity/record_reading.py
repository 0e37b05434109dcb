"""Reading the records of a commit again: there must be an intact one that says what the database says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.errors import FormatError
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.catalogue import record_keys as keys
from shardkeep_service.catalogue.commit_records import RECORDED
from shardkeep_service.catalogue.outbox import record_checkpoint
from shardkeep_service.catalogue.reading import read_object
from shardkeep_service.catalogue.record_building import commit_record
from shardkeep_service.catalogue.records import CommitRecord, decode_any_record
from shardkeep_service.checkpoints.models import Checkpoint, OutboxEntry
from shardkeep_service.integrity.findings import note_finding, resolve_findings
from shardkeep_service.integrity.models import Damage, ObjectKind
from shardkeep_service.service_context import ServiceContext

_WRITTEN_AGAIN = "written again from the database"


@dataclass(frozen=True, slots=True)
class _Records:
    """The records in the bucket: the newest intact one with its version, and the keys of damaged ones."""

    newest: CommitRecord | None
    version: int
    damaged: Sequence[keys.RecordKey]


def check_records(context: ServiceContext, checkpoint_id: str, damaged: list[str], repaired: list[str]) -> None:
    """Has the record written again where none says what the database says, and removes damaged ones that another stands
    for by now. Appends the keys of damaged ones, and of those removed.
    """
    with context.database.read() as session:
        checkpoint = session.get_one(Checkpoint, checkpoint_id)
        if checkpoint.state not in RECORDED or _is_pending(session, checkpoint_id):
            return
        says = commit_record(session, checkpoint_id)
    found = _read(context, checkpoint.project_id, checkpoint_id)
    is_right = found.newest is not None and _same(found.newest, says)
    settled = [key for key in found.damaged if is_right and key.version < found.version]
    left = [key.key for key in found.damaged if key not in settled]
    with context.database.write() as session:
        for key in left:
            if _note(session, checkpoint, key):
                context.metrics.damaged_objects.labels(ObjectKind.COMMIT_RECORD.value).inc()
        if not is_right or left:
            record_checkpoint(session, checkpoint_id)
        resolve_findings(session, [key.key for key in settled], _WRITTEN_AGAIN)
    context.blob_store.delete([key.key for key in settled])
    damaged.extend(left)
    repaired.extend(key.key for key in settled)


def _read(context: ServiceContext, project_id: str, checkpoint_id: str) -> _Records:
    prefix = keys.commit_records_prefix(project_id, checkpoint_id)
    listed = [(blob, keys.parse_record_key(blob.key)) for blob in context.blob_store.list(prefix)]
    newest, version, damaged = None, -1, []
    for blob, key in listed:
        if key is None:
            continue
        try:
            body = read_object(context.blob_store, blob.key, size_bytes=blob.size_bytes)
            newest, version = decode_any_record(body, CommitRecord), key.version
        except FormatError:
            damaged.append(key)
        except BlobMissing:  # removed while we read
            continue
    return _Records(newest, version, damaged)


def _same(found: CommitRecord, says: CommitRecord) -> bool:
    """Whether they say the same but for the version, which counts changes that no record keeps, too."""
    plain = (msgspec.structs.replace(record, version=0, record_version=0) for record in (found, says))
    first, second = (msgspec.json.encode(record, order="deterministic") for record in plain)
    return first == second


def _is_pending(session: Session, checkpoint_id: str) -> bool:
    query = select(OutboxEntry.id).where(OutboxEntry.subject_id == checkpoint_id, OutboxEntry.done_at.is_(None))
    return session.scalars(query.limit(1)).first() is not None


def _note(session: Session, checkpoint: Checkpoint, key: str) -> bool:
    """Whether the finding is new."""
    return note_finding(
        session,
        project_id=checkpoint.project_id,
        checkpoint_id=checkpoint.id,
        kind=ObjectKind.COMMIT_RECORD,
        damage=Damage.DAMAGED,
        object_key=key,
        digest=None,
        detail="the record does not match its own digest; it is written again",
    )
