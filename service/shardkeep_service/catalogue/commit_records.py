"""Commit records: one JSON object in the blob store per commit, with all that the database knew of it.

They are written from the outbox, seconds after the commit. Writing one again gives the same bytes, so a crash between
writing
and ticking it off harms nothing.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow, OutboxEntry
from shardkeep_service.checkpoints.object_keys import commit_record_key
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.models import Attempt, Run
from shardkeep_service.service_context import ServiceContext

RECORD_VERSION: Final = 1
Known = TypeVar("Known")
_BATCH: Final = 100


class ManifestRecord(msgspec.Struct, frozen=True):
    """One rank's manifest: where it is and what it must be."""

    rank: int
    object_key: str
    size_bytes: int
    body_digest: str
    content_digest: str


class AttemptRecord(msgspec.Struct, frozen=True):
    """The attempt that committed it, and what that attempt resumed from: the lineage."""

    id: str
    number: int
    launch_id: str
    ordinal: int
    world_size: int
    created_at: int
    decision: str | None
    labels: dict[str, str]


class CommitRecord(msgspec.Struct, frozen=True):
    """One commit. Times are microseconds since 1970 UTC, digests hexadecimal BLAKE3."""

    record_version: int
    checkpoint_id: str
    project_id: str
    project: str
    run_id: str
    run: str
    attempt: AttemptRecord
    parent_id: str | None
    number: int
    sequence: int
    save: int
    step: int
    world_size: int
    opened_at: int
    committed_at: int
    index_key: str
    index_digest: str
    raw_bytes: int
    stored_bytes: int
    new_bytes: int
    tensors: int
    metrics: dict[str, Any]
    environment: dict[str, Any]
    report: dict[str, Any]
    manifests: list[ManifestRecord]


def write_commit_records(context: ServiceContext) -> int:
    """Writes the records that the outbox asks for, oldest first, outside any transaction; gives their number."""
    written = 0
    while batch := _pending(context):
        for entry_id, record in batch:
            body = memoryview(msgspec.json.encode(record))
            context.blob_store.put(commit_record_key(record.project_id, record.checkpoint_id), body)
            _tick_off(context, entry_id)
            written += 1
    return written


def _pending(context: ServiceContext) -> list[tuple[int, CommitRecord]]:
    query = select(OutboxEntry).where(OutboxEntry.done_at.is_(None)).order_by(OutboxEntry.id).limit(_BATCH)
    with context.database.read() as session:
        return [(entry.id, commit_record(session, entry.checkpoint_id)) for entry in session.scalars(query)]


def _tick_off(context: ServiceContext, entry_id: int) -> None:
    with context.database.write() as session:
        session.get_one(OutboxEntry, entry_id).done_at = context.database.now(session)


def commit_record(session: Session, checkpoint_id: str) -> CommitRecord:
    """The record of a checkpoint that was committed. What changes later (pins, deletion) is not in it."""
    query = (
        select(Checkpoint, Attempt, Run, Project)
        .join(Attempt, Attempt.id == Checkpoint.attempt_id)
        .join(Run, Run.id == Checkpoint.run_id)
        .join(Project, Project.id == Checkpoint.project_id)
        .where(Checkpoint.id == checkpoint_id)
    )
    checkpoint, attempt, run, project = session.execute(query).one()
    return CommitRecord(
        record_version=RECORD_VERSION,
        checkpoint_id=checkpoint.id,
        project_id=project.id,
        project=project.name,
        run_id=run.id,
        run=run.name,
        attempt=_attempt_record(attempt),
        parent_id=checkpoint.parent_id,
        number=checkpoint.number,
        sequence=_known(checkpoint.sequence),
        save=checkpoint.save,
        step=checkpoint.step,
        world_size=checkpoint.world_size,
        opened_at=checkpoint.opened_at,
        committed_at=_known(checkpoint.committed_at),
        index_key=_known(checkpoint.index_key),
        index_digest=_known(checkpoint.index_digest),
        raw_bytes=_known(checkpoint.raw_bytes),
        stored_bytes=_known(checkpoint.stored_bytes),
        new_bytes=_known(checkpoint.new_bytes),
        tensors=_known(checkpoint.tensors),
        metrics=checkpoint.metrics,
        environment=checkpoint.environment,
        report=_known(checkpoint.report),
        manifests=_manifest_records(session, checkpoint_id),
    )


def _known(value: Known | None) -> Known:
    assert value is not None  # the commit transaction sets it
    return value


def _attempt_record(attempt: Attempt) -> AttemptRecord:
    return AttemptRecord(
        id=attempt.id,
        number=attempt.number,
        launch_id=attempt.launch_id,
        ordinal=attempt.ordinal,
        world_size=attempt.world_size,
        created_at=attempt.created_at,
        decision=attempt.decision,
        labels=attempt.labels,
    )


def _manifest_records(session: Session, checkpoint_id: str) -> list[ManifestRecord]:
    query = select(
        ManifestRow.rank,
        ManifestRow.object_key,
        ManifestRow.size_bytes,
        ManifestRow.body_digest,
        ManifestRow.content_digest,
    )
    rows = session.execute(query.where(ManifestRow.checkpoint_id == checkpoint_id).order_by(ManifestRow.rank))
    return [ManifestRecord(*row) for row in rows]
