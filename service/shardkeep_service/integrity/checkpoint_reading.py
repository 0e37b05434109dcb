"""Reading what belongs to a checkpoint beside its chunks again: manifests, index and records.

A damaged index is built again from the manifests, a damaged record written again from the database. A damaged manifest
cannot be made again: the checkpoint is quarantined until its object is whole, by a restored version of it say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from shardkeep.errors import FormatError
from shardkeep.format.manifest import Manifest
from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.access.audit import WORKER, record
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.catalogue.outbox import record_checkpoint
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.checkpoints.repository import lock_checkpoint
from shardkeep_service.checkpoints.stored_manifests import Unreadable, try_manifests
from shardkeep_service.chunks.healing import judge_checkpoint
from shardkeep_service.integrity.findings import REBUILT, WHOLE_AGAIN, note_finding, note_harm, resolve_findings
from shardkeep_service.integrity.index_repair import StoredIndex, index_is_whole, make_index
from shardkeep_service.integrity.models import Damage, ObjectKind
from shardkeep_service.integrity.record_reading import check_records
from shardkeep_service.service_context import ServiceContext

SCRUBBED: Final = (
    CheckpointState.COMMITTED.value,
    CheckpointState.DELETED.value,
    CheckpointState.UNCONFIRMED.value,
)
"""The states of checkpoints whose objects must be whole."""


@dataclass(slots=True)
class CheckpointRead:
    """What reading gave: keys of objects that are damaged or lost, and of those that were made again."""

    checkpoint_id: str
    bytes_read: int = 0
    damaged: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    quarantined: bool = False


@dataclass(frozen=True, slots=True)
class _Stored:
    checkpoint: Checkpoint
    rows: Sequence[ManifestRow]

    @property
    def index(self) -> StoredIndex | None:
        key, digest = self.checkpoint.index_key, self.checkpoint.index_digest
        return None if key is None or digest is None else StoredIndex(key, digest)


def check_checkpoint(context: ServiceContext, checkpoint_id: str) -> CheckpointRead:
    """Reads its manifests, index and records; notes, repairs and quarantines. BlobStoreUnavailable passes through."""
    stored = _load(context, checkpoint_id)
    read = CheckpointRead(checkpoint_id, bytes_read=sum(row.size_bytes for row in stored.rows))
    _check_manifests(context, stored, read)
    if stored.index is not None and not index_is_whole(context.blob_store, stored.index):
        _repair_index(context, stored, stored.index, read)
    elif stored.index is not None:
        with context.database.write() as session:
            resolve_findings(session, [stored.index.object_key], WHOLE_AGAIN)
    check_records(context, checkpoint_id, read.damaged, read.repaired)
    read.quarantined = judge_checkpoint(context, stored.checkpoint.project_id, checkpoint_id)
    with context.database.write() as session:
        now = context.database.now(session)
        session.execute(update(Checkpoint).where(Checkpoint.id == checkpoint_id).values(scrubbed_at=now))
    return read


def repair_index(context: ServiceContext, checkpoint_id: str) -> str | None:
    """For a reader that met a damaged index: the key of one built again, or None where that cannot be done."""
    stored = _load(context, checkpoint_id)
    index = stored.index
    if index is None:
        return None
    if index_is_whole(context.blob_store, index):  # another reader was first
        return index.object_key
    read = CheckpointRead(checkpoint_id)
    _repair_index(context, stored, index, read)
    if not read.repaired:
        judge_checkpoint(context, stored.checkpoint.project_id, checkpoint_id)
        return None
    found = _load(context, checkpoint_id).index
    return None if found is None else found.object_key


def _load(context: ServiceContext, checkpoint_id: str) -> _Stored:
    query = select(ManifestRow).where(ManifestRow.checkpoint_id == checkpoint_id).order_by(ManifestRow.rank)
    with context.database.read() as session:
        return _Stored(session.get_one(Checkpoint, checkpoint_id), session.scalars(query).all())


def _check_manifests(context: ServiceContext, stored: _Stored, read: CheckpointRead) -> None:
    unreadable = [
        (row, found)
        for row, found in try_manifests(context, stored.rows)
        if not isinstance(found, Manifest)
    ]  # fmt: skip
    bad_keys = {row.object_key for row, _ in unreadable}
    with context.database.write() as session:
        if not _is_kept(session, stored.checkpoint.id):
            return
        for row, reason in unreadable:
            _note(context, session, stored.checkpoint, ObjectKind.MANIFEST, row.object_key, row.body_digest, reason)
        resolve_findings(session, {row.object_key for row in stored.rows} - bad_keys, WHOLE_AGAIN)
    read.damaged.extend(sorted(bad_keys))


def _repair_index(context: ServiceContext, stored: _Stored, index: StoredIndex, read: CheckpointRead) -> None:
    checkpoint = stored.checkpoint
    try:
        made = make_index(context, project_id=checkpoint.project_id, checkpoint_id=checkpoint.id, rows=stored.rows)
    except (FormatError, BlobMissing) as exc:
        with context.database.write() as session:
            if not _is_kept(session, checkpoint.id):
                return
            _note(context, session, checkpoint, ObjectKind.INDEX, index.object_key, index.digest, exc)
        read.damaged.append(index.object_key)
        return
    with context.database.write() as session:
        _note(context, session, checkpoint, ObjectKind.INDEX, index.object_key, index.digest, None)
        _point_to(session, checkpoint.id, index, made)
        resolve_findings(session, [index.object_key], f"{REBUILT} from the manifests as {made.object_key}")
    read.repaired.append(index.object_key)


def _is_kept(session: Session, checkpoint_id: str) -> bool:
    """Whether what was found to be gone was not purged while we read: a purge changes the state first."""
    return lock_checkpoint(session, checkpoint_id).state in SCRUBBED


def _point_to(session: Session, checkpoint_id: str, old: StoredIndex, new: StoredIndex) -> None:
    """Only where nobody else was first."""
    changed = session.scalars(
        update(Checkpoint)
        .where(Checkpoint.id == checkpoint_id, Checkpoint.index_key == old.object_key)
        .values(index_key=new.object_key, index_digest=new.digest, version=Checkpoint.version + 1)
        .returning(Checkpoint.project_id),
        execution_options={"synchronize_session": False},
    ).first()
    if changed is None:
        return
    record_checkpoint(session, checkpoint_id)
    detail = {"damaged": old.object_key, "rebuilt": new.object_key}
    record(session, WORKER, "checkpoint.index_rebuild", target=checkpoint_id, project_id=changed, detail=detail)


def _note(
    context: ServiceContext,
    session: Session,
    checkpoint: Checkpoint,
    kind: ObjectKind,
    object_key: str,
    digest: str,
    reason: Unreadable | None,
) -> None:
    is_new = note_finding(
        session,
        project_id=checkpoint.project_id,
        checkpoint_id=checkpoint.id,
        kind=kind,
        damage=Damage.LOST if isinstance(reason, BlobMissing) else Damage.DAMAGED,
        object_key=object_key,
        digest=digest,
        detail=str(reason or f"the stored {kind.value} has another digest, or is gone"),
    )
    if is_new:
        context.metrics.damaged_objects.labels(kind.value).inc()
    note_harm(session, object_key, [checkpoint.id])
