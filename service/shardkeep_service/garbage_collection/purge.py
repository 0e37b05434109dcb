"""Purging: what was deleted long enough ago loses its record, its manifests and its rows; its chunks follow by marking.

The order is that of a commit backwards. The state goes first, in one transaction, so that nobody restores what is being
taken apart; then the commit record, so that no rebuild brings it back; then objects; then the rows that mark its
chunks. Cut off at any point, the next pass goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, and_, delete, or_, select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.access import audit
from shardkeep_service.catalogue.commit_records import delete_records
from shardkeep_service.checkpoints.models import Checkpoint, CheckpointTag, ManifestRow
from shardkeep_service.checkpoints.repository import lock_checkpoint
from shardkeep_service.garbage_collection.horizon import finished_horizon, purge_horizon
from shardkeep_service.garbage_collection.tally import Tally
from shardkeep_service.retention.inputs import parents_of_unfinished, resumed_from
from shardkeep_service.runs.models import Run
from shardkeep_service.runs.repository import lock_run
from shardkeep_service.service_context import ServiceContext

_AT_A_TIME: Final = 100


@dataclass(frozen=True, slots=True)
class _Leftovers:
    """What is to be removed of a checkpoint that is gone."""

    checkpoint_id: str
    project_id: str
    index_key: str | None


def purge_deleted(context: ServiceContext, tally: Tally) -> Iterator[int]:
    """Purges what can be restored no more. Yields the objects handled, between any two steps."""
    for checkpoint_id in _found(context, purge_candidates):
        gone = _let_go(context, checkpoint_id)
        yield 1
        if gone is not None:
            yield from _remove(context, gone)
            tally.purged_checkpoints += 1
            context.metrics.purged_checkpoints.inc()


def clear_aborted(context: ServiceContext, tally: Tally) -> Iterator[int]:
    """Removes what arrived of saves that were aborted long ago. Yields as `purge_deleted` does."""
    for checkpoint_id in _found(context, aborted_candidates):
        with context.database.read() as session:
            checkpoint = session.get_one(Checkpoint, checkpoint_id)
            gone = _Leftovers(checkpoint.id, checkpoint.project_id, None)
        yield 1
        yield from _remove(context, gone)
        tally.cleared_aborted_checkpoints += 1


def purge_candidates(context: ServiceContext, now: int) -> ColumnElement[bool]:
    """Deleted longer ago than can be restored, or being purged and not through."""
    deleted = Checkpoint.state == CheckpointState.DELETED.value
    return or_(
        and_(deleted, Checkpoint.deleted_at < purge_horizon(context.settings, now)),
        and_(Checkpoint.state == CheckpointState.PURGED.value, Checkpoint.purged_at.is_(None)),
    )


def aborted_candidates(context: ServiceContext, now: int) -> ColumnElement[bool]:
    """Aborted, opened so long ago that nobody writes to it any more, and not cleared yet."""
    return and_(
        Checkpoint.state == CheckpointState.ABORTED.value,
        Checkpoint.purged_at.is_(None),
        Checkpoint.opened_at < finished_horizon(context.settings, now),
    )


def is_needed(session: Session, run: Run, checkpoint_id: str) -> bool:
    """Whether a save builds on a deleted checkpoint, or a rank of the current attempt may still come for it."""
    if run.deleted_at is not None:
        return False
    return checkpoint_id == resumed_from(session, run) or checkpoint_id in parents_of_unfinished(session, run.id)


def _found(context: ServiceContext, condition: Callable[[ServiceContext, int], ColumnElement[bool]]) -> Iterator[str]:
    last = ""
    while True:
        with context.database.read() as session:
            wanted = condition(context, context.database.now(session))
            query = select(Checkpoint.id).where(wanted, Checkpoint.id > last).order_by(Checkpoint.id)
            page = session.scalars(query.limit(_AT_A_TIME)).all()
        yield from page
        if len(page) < _AT_A_TIME:
            return
        last = page[-1]


def _let_go(context: ServiceContext, checkpoint_id: str) -> _Leftovers | None:
    """Makes it unrestorable, if nobody restored or needs it meanwhile. The run's lock keeps new needs out."""
    with context.database.read() as session:
        run_id = session.get_one(Checkpoint, checkpoint_id).run_id
    with context.database.write() as session:
        run = lock_run(session, run_id)
        checkpoint = lock_checkpoint(session, checkpoint_id)
        gone = _Leftovers(checkpoint.id, checkpoint.project_id, checkpoint.index_key)
        if checkpoint.state == CheckpointState.PURGED.value:
            return gone if checkpoint.purged_at is None else None
        if not _may_go(context, session, run, checkpoint):
            return None
        checkpoint.state = CheckpointState.PURGED.value
        checkpoint.version += 1
        detail = {"step": checkpoint.step}
        audit.record(
            session, audit.WORKER, "checkpoint.purge", target=gone.checkpoint_id, project_id=gone.project_id,
            detail=detail,
        )  # fmt: skip
        return gone


def _may_go(context: ServiceContext, session: Session, run: Run, checkpoint: Checkpoint) -> bool:
    horizon = purge_horizon(context.settings, context.database.now(session))
    if checkpoint.state != CheckpointState.DELETED.value or (checkpoint.deleted_at or 0) >= horizon:
        return False
    return not is_needed(session, run, checkpoint.id)


def _remove(context: ServiceContext, gone: _Leftovers) -> Iterator[int]:
    delete_records(context, gone.project_id, gone.checkpoint_id)
    yield 1
    with context.database.read() as session:
        query = select(ManifestRow.object_key).where(ManifestRow.checkpoint_id == gone.checkpoint_id)
        manifests = list(session.scalars(query))
    indexes = [gone.index_key] if gone.index_key else []
    context.blob_store.delete([*manifests, *indexes])
    context.metrics.collected_objects.labels("manifest").inc(len(manifests))
    context.metrics.collected_objects.labels("index").inc(len(indexes))
    yield len(manifests) + len(indexes)
    with context.database.write() as session:
        checkpoint = lock_checkpoint(session, gone.checkpoint_id)
        session.execute(delete(ManifestRow).where(ManifestRow.checkpoint_id == gone.checkpoint_id))
        session.execute(delete(CheckpointTag).where(CheckpointTag.checkpoint_id == gone.checkpoint_id))
        checkpoint.purged_at = context.database.now(session)
    yield 1
