"""Lineage after the checkpoints are back: parents, what attempts resumed from, and where a run's counts stand."""

from __future__ import annotations

from sqlalchemy import func, or_, select, update
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.catalogue.rebuilding.names import settle_current_attempt
from shardkeep_service.catalogue.rebuilding.newest import Source
from shardkeep_service.catalogue.records import OriginRecord
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.runs.models import Attempt, Run
from shardkeep_service.runs.repository import lock_run


def restore_lineage(source: Source, project_id: str) -> None:
    """Call when every attempt and committed checkpoint of the project is restored."""
    database = source.context.database
    with database.write() as session:
        for origin in source.origins.values():
            _stand_in_for_purged(session, source, origin)
    for checkpoint_id, parent_id in source.parents:
        with database.write() as session:
            if session.get(Checkpoint, parent_id) is not None:
                session.execute(update(Checkpoint).where(Checkpoint.id == checkpoint_id).values(parent_id=parent_id))
    with database.read() as session:
        run_ids = session.scalars(select(Run.id).where(Run.project_id == project_id)).all()
    for run_id in run_ids:
        with database.write() as session:
            _settle_counts(session, lock_run(session, run_id))
    source.origins.clear()
    source.parents.clear()


def _stand_in_for_purged(session: Session, source: Source, origin: OriginRecord) -> None:
    """A checkpoint that an attempt resumed from and that was purged since: the line leads through its row."""
    attempt = session.get(Attempt, origin.attempt_id)
    if session.get(Checkpoint, origin.checkpoint_id) is not None:
        return
    if attempt is None:
        source.report.tell(
            origin.checkpoint_id, f"its attempt {origin.attempt_id} has no record: lines through it end there"
        )
        return
    run = session.get_one(Run, attempt.run_id)
    in_attempt = (Checkpoint.attempt_id == attempt.id) & (Checkpoint.save == origin.save)
    in_run = Checkpoint.run_id == run.id
    numbered = or_(Checkpoint.number == origin.number, Checkpoint.sequence == origin.sequence)
    if session.scalars(select(Checkpoint.id).where(in_attempt | (in_run & numbered))).first() is not None:
        source.report.tell(origin.checkpoint_id, "it was purged and its place is another checkpoint's")
        return
    session.add(
        Checkpoint(
            id=origin.checkpoint_id, project_id=run.project_id, run_id=run.id, attempt_id=attempt.id,
            number=origin.number, save=origin.save, step=origin.step, world_size=origin.world_size,
            state=CheckpointState.PURGED.value, sequence=origin.sequence, opened_at=origin.opened_at,
            deadline=origin.opened_at, committed_at=origin.committed_at, arrived=origin.world_size, metrics={},
            environment={}, pinned=False, quarantined=False, version=1, purged_at=source.context.database.now(session),
        )
    )  # fmt: skip
    session.flush()


def _settle_counts(session: Session, run: Run) -> None:
    """Numbers go on after the highest there is."""
    highest = select(func.max(Checkpoint.number), func.max(Checkpoint.sequence)).where(Checkpoint.run_id == run.id)
    number, sequence = session.execute(highest).one()
    run.opened = max(run.opened, number or 0)
    run.sequence = max(run.sequence, sequence or 0)
    settle_current_attempt(session, run)
