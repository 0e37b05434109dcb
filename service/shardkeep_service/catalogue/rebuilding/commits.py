"""Restoring committed checkpoints from their records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from shardkeep.errors import FormatError
from shardkeep.format.index import decode_index
from shardkeep.format.manifest import Manifest
from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.catalogue import record_keys as keys
from shardkeep_service.catalogue.commit_records import COMMITTED_ONCE
from shardkeep_service.catalogue.outbox import record_checkpoint
from shardkeep_service.catalogue.reading import read_object
from shardkeep_service.catalogue.rebuilding.chunks import Namer, settle_chunks
from shardkeep_service.catalogue.rebuilding.names import (
    ensure_attempt,
    ensure_project,
    ensure_run,
    lost_life_attempt,
)
from shardkeep_service.catalogue.rebuilding.newest import Source
from shardkeep_service.catalogue.rebuilding.pending import has_pending
from shardkeep_service.catalogue.records import CommitRecord
from shardkeep_service.checkpoints.chunk_ids import pack_ids
from shardkeep_service.checkpoints.models import Checkpoint, CheckpointTag, ManifestRow, RankSession
from shardkeep_service.checkpoints.repository import lock_checkpoint
from shardkeep_service.checkpoints.stored_manifests import try_manifests
from shardkeep_service.integrity.findings import note_finding
from shardkeep_service.integrity.index_repair import StoredIndex, index_is_whole, make_index
from shardkeep_service.integrity.models import Damage, ObjectKind
from shardkeep_service.runs.repository import lock_run


@dataclass(slots=True)
class _Parts:
    """What of a checkpoint is there: its manifests with the ids of their chunks, its index, and what is not whole."""

    rows: list[ManifestRow]
    index: StoredIndex
    unreadable: list[tuple[ManifestRow, str]] = field(default_factory=list)
    index_is_gone: str | None = None
    lost_chunks: int = 0

    @property
    def is_whole(self) -> bool:
        return not self.unreadable and self.index_is_gone is None and not self.lost_chunks


def restore_commits(source: Source, project_id: str) -> None:
    """Every checkpoint of the project that has a record of its commit."""
    for checkpoint_id in source.listing.subjects(project_id, keys.COMMITS):
        record = source.newest(project_id, keys.COMMITS, checkpoint_id, CommitRecord)
        if record is not None:
            _restore(source, record)


def _restore(source: Source, record: CommitRecord) -> None:
    with source.context.database.read() as session:
        row = session.get(Checkpoint, record.checkpoint_id)
    if row is not None and row.state in COMMITTED_ONCE:
        _bring_up_to_date(source, record)
    else:
        _add(source, record)
    _pass_damaged_versions(source, record)


def _pass_damaged_versions(source: Source, record: CommitRecord) -> None:
    """Where a newer record is damaged, moves the version past it, and writes one: its key is used."""
    highest = max(
        version for _, version, _ in source.listing.records(record.project_id, keys.COMMITS, record.checkpoint_id)
    )
    if highest <= record.version:
        return
    with source.context.database.write() as session:
        row = lock_checkpoint(session, record.checkpoint_id)
        if row.version <= highest and row.state != CheckpointState.PURGED.value:
            row.version = highest + 1
            record_checkpoint(session, row.id)


def _add(source: Source, record: CommitRecord) -> None:
    parts = _read_parts(source, record)
    with source.context.database.write() as session:
        ensure_project(session, source, record.project_id, record.project, record.project_created_at)
        ensure_run(session, source, record.project_id, record.run_id, record.run, record.run_created_at)
        lock_run(session, record.run_id)  # its sums change with the state
        ensure_attempt(session, source, record.attempt, run_id=record.run_id)
        _insert(session, source, record, parts)
    source.report.checkpoints += 1
    if not parts.is_whole:
        source.report.quarantined.append(record.checkpoint_id)
        source.report.tell(record.checkpoint_id, _what_is_missing(parts))


def _bring_up_to_date(source: Source, record: CommitRecord) -> None:
    """Takes over pin, tags and deletion of a known checkpoint, if the record is newer."""
    with source.context.database.write() as session:
        lock_run(session, record.run_id)  # its sums change with the state
        row = lock_checkpoint(session, record.checkpoint_id)
        if record.version <= row.version or row.state == CheckpointState.PURGED.value:
            return
        if has_pending(session, row.id):
            row.version = record.version + 1  # what the database says was said later: it is written past the record
            return
        _set_changeable(session, row, record)
        row.version = record.version
    source.report.changed += 1


def _read_parts(source: Source, record: CommitRecord) -> _Parts:
    rows = [
        ManifestRow(
            checkpoint_id=record.checkpoint_id, rank=manifest.rank, content_digest=manifest.content_digest,
            body_digest=manifest.body_digest, object_key=manifest.object_key, size_bytes=manifest.size_bytes,
            chunk_ids=b"", arrived_at=manifest.arrived_at or record.committed_at,
        )
        for manifest in record.manifests
    ]  # fmt: skip
    parts = _Parts(rows, StoredIndex(record.index_key, record.index_digest))
    namer = Namer(record.project_id, record.run_id, record.checkpoint_id)
    for row, manifest in try_manifests(source.context, rows):
        if isinstance(manifest, Manifest):
            ids, lost = settle_chunks(source, namer, manifest.chunks())
            row.chunk_ids = pack_ids(np.unique(np.array(ids, np.int64)))
            parts.lost_chunks += lost
        else:
            parts.unreadable.append((row, str(manifest)))
    _read_index(source, record, parts)
    if parts.unreadable and parts.index_is_gone is None:
        _keep_chunks_of_index(source, namer, parts)
    return parts


def _keep_chunks_of_index(source: Source, namer: Namer, parts: _Parts) -> None:
    """Lets manifests that cannot be read name all chunks of the index: what they named must not be collected."""
    index = decode_index(read_object(source.context.blob_store, parts.index.object_key))
    ids, _ = settle_chunks(source, namer, index.chunk_table.rows())
    for row, _ in parts.unreadable:
        row.chunk_ids = pack_ids(np.unique(np.array(ids, np.int64)))


def _read_index(source: Source, record: CommitRecord, parts: _Parts) -> None:
    if index_is_whole(source.context.blob_store, parts.index):
        return
    try:
        parts.index = make_index(
            source.context, project_id=record.project_id, checkpoint_id=record.checkpoint_id, rows=parts.rows
        )
    except (FormatError, BlobMissing) as exc:
        parts.index_is_gone = str(exc)
    else:
        source.report.tell(record.index_key, "the index was damaged or gone, and was built again from the manifests")


def _insert(session: Session, source: Source, record: CommitRecord, parts: _Parts) -> None:
    row = session.get(Checkpoint, record.checkpoint_id)
    if row is None:
        row = Checkpoint(id=record.checkpoint_id, project_id=record.project_id, run_id=record.run_id)
        _place(session, source, row, record)
        session.add(row)
    else:  # a restored backup knew it while it was open
        session.execute(delete(RankSession).where(RankSession.checkpoint_id == row.id))
        session.execute(delete(ManifestRow).where(ManifestRow.checkpoint_id == row.id))
        row.abort = row.validation_owner = row.validation_until = None
        row.sequence = _free_number(session, row, "sequence", record.sequence)
    _fill(row, record, parts)
    session.flush()
    if record.parent_id is not None:
        source.parents.append((row.id, record.parent_id))
    _set_changeable(session, row, record)
    session.add_all(parts.rows)
    _note_what_is_missing(session, record, parts)
    if parts.index.digest != record.index_digest or parts.index.object_key != record.index_key:
        row.version += 1
        record_checkpoint(session, row.id)


def _place(session: Session, source: Source, row: Checkpoint, record: CommitRecord) -> None:
    """Attempt, save, number and sequence: its own, or, where another life of the database gave one away, beside it."""
    row.attempt_id, row.save = record.attempt.id, record.save
    taken = select(Checkpoint.id).where(Checkpoint.attempt_id == row.attempt_id, Checkpoint.save == row.save)
    if session.scalars(taken).first() is not None:
        row.attempt_id = lost_life_attempt(session, source, record.run_id, record.world_size)
        source.report.tell(row.id, f"save {record.save} of its attempt is another checkpoint: it stands off the line")
    row.number = _free_number(session, row, "number", record.number)
    row.sequence = _free_number(session, row, "sequence", record.sequence)


def _free_number(session: Session, row: Checkpoint, name: str, wanted: int) -> int:
    column = getattr(Checkpoint, name)
    others = (Checkpoint.run_id == row.run_id, Checkpoint.id != row.id)
    if session.scalars(select(Checkpoint.id).where(*others, column == wanted)).first() is None:
        return wanted
    lowest = session.scalars(select(func.min(column)).where(*others)).one()
    return min(int(lowest), 0) - 1


def _fill(row: Checkpoint, record: CommitRecord, parts: _Parts) -> None:
    row.state = CheckpointState.COMMITTED.value
    row.step, row.world_size = record.step, record.world_size
    row.opened_at = row.deadline = record.opened_at
    row.arrived = record.world_size
    row.committed_at = record.committed_at
    row.index_key, row.index_digest = parts.index.object_key, parts.index.digest
    row.raw_bytes, row.stored_bytes, row.new_bytes = record.raw_bytes, record.stored_bytes, record.new_bytes
    row.tensors = record.tensors
    row.metrics, row.environment, row.report = record.metrics, record.environment, record.report
    row.quarantined = not parts.is_whole
    row.version = max(record.version, 1)


def _set_changeable(session: Session, row: Checkpoint, record: CommitRecord) -> None:
    """What may change after the commit."""
    row.state = (CheckpointState.COMMITTED if record.deleted_at is None else CheckpointState.DELETED).value
    row.deleted_at, row.deleted_with, row.deletion_reason = (
        record.deleted_at,
        record.deleted_with,
        record.deletion_reason,
    )
    row.pinned, row.pin_reason = record.pinned, record.pin_reason
    session.execute(delete(CheckpointTag).where(CheckpointTag.checkpoint_id == row.id))
    session.add_all(
        CheckpointTag(checkpoint_id=row.id, tag=tag, run_id=row.run_id, set_at=set_at)
        for tag, set_at in record.tags.items()
    )


def _note_what_is_missing(session: Session, record: CommitRecord, parts: _Parts) -> None:
    places = {"project_id": record.project_id, "checkpoint_id": record.checkpoint_id}
    for row, detail in parts.unreadable:
        note_finding(
            session, **places, kind=ObjectKind.MANIFEST, damage=Damage.DAMAGED, object_key=row.object_key,
            digest=row.body_digest, detail=detail,
        )  # fmt: skip
    if parts.index_is_gone is not None:
        note_finding(
            session, **places, kind=ObjectKind.INDEX, damage=Damage.DAMAGED, object_key=record.index_key,
            digest=record.index_digest, detail=parts.index_is_gone,
        )  # fmt: skip


def _what_is_missing(parts: _Parts) -> str:
    found: Sequence[tuple[int, str]] = (
        (len(parts.unreadable), "manifests cannot be read back"),
        (parts.lost_chunks, "chunks have no object"),
        (int(parts.index_is_gone is not None), "index is gone"),
    )
    listed = ", ".join(f"{count} {what}" for count, what in found if count)
    return f"it is committed and cannot be loaded whole: {listed}"
