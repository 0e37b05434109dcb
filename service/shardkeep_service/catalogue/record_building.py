"""Records as the database knows their subjects now."""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep_service.catalogue.records import (
    RECORD_VERSION,
    AttemptRecord,
    CommitRecord,
    ManifestRecord,
    OpenRecord,
    OriginRecord,
    ProjectRecord,
    RunRecord,
)
from shardkeep_service.checkpoints.models import Checkpoint, CheckpointTag, ManifestRow
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.models import Attempt, Run

Known = TypeVar("Known")


def commit_record(session: Session, checkpoint_id: str) -> CommitRecord:
    """The record of a checkpoint that was committed."""
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
        project=project.shown_name,
        run_id=run.id,
        run=run.shown_name,
        attempt=attempt_record(session, attempt, project_id=project.id),
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
        version=checkpoint.version,
        deleted_at=checkpoint.deleted_at,
        pinned=checkpoint.pinned,
        pin_reason=checkpoint.pin_reason,
        tags=_tags(session, checkpoint_id),
        deleted_with=checkpoint.deleted_with,
        deletion_reason=checkpoint.deletion_reason,
        run_created_at=run.created_at,
        project_created_at=project.created_at,
    )


def open_record(checkpoint: Checkpoint) -> OpenRecord:
    """The record of a checkpoint that is not finished."""
    return OpenRecord(
        record_version=RECORD_VERSION,
        checkpoint_id=checkpoint.id,
        project_id=checkpoint.project_id,
        run_id=checkpoint.run_id,
        attempt_id=checkpoint.attempt_id,
        parent_id=checkpoint.parent_id,
        number=checkpoint.number,
        save=checkpoint.save,
        step=checkpoint.step,
        world_size=checkpoint.world_size,
        opened_at=checkpoint.opened_at,
    )


def attempt_record(session: Session, attempt: Attempt, *, project_id: str) -> AttemptRecord:
    """The record of an attempt."""
    return AttemptRecord(
        id=attempt.id,
        number=attempt.number,
        launch_id=attempt.launch_id,
        ordinal=attempt.ordinal,
        world_size=attempt.world_size,
        created_at=attempt.created_at,
        decision=attempt.decision,
        labels=attempt.labels,
        run_id=attempt.run_id,
        project_id=project_id,
        decided_at=attempt.decided_at,
        passed_over=attempt.passed_over,
        origin=_origin(session, attempt.decision),
    )


def run_record(run: Run) -> RunRecord:
    """The record of a run."""
    return RunRecord(
        record_version=RECORD_VERSION,
        id=run.id,
        project_id=run.project_id,
        name=run.name,
        created_at=run.created_at,
        version=run.version,
        deleted_at=run.deleted_at,
        deleted_name=run.deleted_name,
        deleted_with=run.deleted_with,
    )


def project_record(project: Project) -> ProjectRecord:
    """The record of a project."""
    return ProjectRecord(
        record_version=RECORD_VERSION,
        id=project.id,
        name=project.name,
        created_at=project.created_at,
        version=project.version,
        deleted_at=project.deleted_at,
        deleted_name=project.deleted_name,
    )


def _origin(session: Session, decision: str | None) -> OriginRecord | None:
    origin = None if decision is None else session.get(Checkpoint, decision)
    if origin is None:  # undecided, or it began fresh
        return None
    return OriginRecord(
        checkpoint_id=origin.id,
        attempt_id=origin.attempt_id,
        number=origin.number,
        sequence=_known(origin.sequence),
        save=origin.save,
        step=origin.step,
        world_size=origin.world_size,
        opened_at=origin.opened_at,
        committed_at=_known(origin.committed_at),
    )


def _manifest_records(session: Session, checkpoint_id: str) -> list[ManifestRecord]:
    query = select(
        ManifestRow.rank,
        ManifestRow.object_key,
        ManifestRow.size_bytes,
        ManifestRow.body_digest,
        ManifestRow.content_digest,
        ManifestRow.arrived_at,
    )
    rows = session.execute(query.where(ManifestRow.checkpoint_id == checkpoint_id).order_by(ManifestRow.rank))
    return [ManifestRecord(*row) for row in rows]


def _tags(session: Session, checkpoint_id: str) -> dict[str, int]:
    query = select(CheckpointTag.tag, CheckpointTag.set_at).where(CheckpointTag.checkpoint_id == checkpoint_id)
    return dict(session.execute(query).all())


def _known(value: Known | None) -> Known:
    assert value is not None  # the commit transaction sets it
    return value
