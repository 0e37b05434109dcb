"""What deleting a checkpoint would mean: what goes, what stays, and what the run would resume from then."""

from __future__ import annotations

from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState, CheckpointSummary, DeletionImpact
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.checkpoints.reading import not_committed
from shardkeep_service.checkpoints.repository import find_checkpoint, load_places, places
from shardkeep_service.checkpoints.turns import Turns
from shardkeep_service.checkpoints.views import summaries
from shardkeep_service.retention.freed_bytes import freed_bytes
from shardkeep_service.runs.lines import heads_of, line_query, on_line
from shardkeep_service.runs.models import Attempt
from shardkeep_service.service_context import ServiceContext

_LISTED_ATTEMPTS: Final = 20


def deletion_impact(context: ServiceContext, turns: Turns, principal: Principal, checkpoint_id: str) -> DeletionImpact:
    """Of a committed checkpoint. Reads what every manifest of the project names, so a job's token may not ask.

    Refuses `checkpoint_not_committed`, and `busy` while many ask.
    """
    with context.database.read() as session:
        checkpoint = find_checkpoint(session, principal, checkpoint_id)
        principal.check_sees_whole_projects()
        if checkpoint.state != CheckpointState.COMMITTED.value:
            raise not_committed(session, checkpoint)
        latest = _last_two_on_line(session, checkpoint.run_id)
        after = [found for found in latest if found != checkpoint_id]
        shown = _summary(session, after[0]) if after else None
        attempts = _resumed_by(session, checkpoint)
        children = _children(session, checkpoint)
    with turns.turn():
        freed = freed_bytes(context.database, checkpoint.project_id, [checkpoint_id])
    return DeletionImpact(
        checkpoint_id=checkpoint_id,
        freed_bytes=freed,
        restorable_seconds=context.settings.deleted_keep_seconds,
        is_latest=latest[:1] == [checkpoint_id],
        latest_after=shown,
        resumed_by=attempts,
        children=children,
        refused_because=_refusal(checkpoint),
    )


def _last_two_on_line(session: Session, run_id: str) -> list[str]:
    """What `latest` would answer, and what without that one."""
    head = heads_of(session, [run_id]).get(run_id)
    if head is None:
        return []
    line = line_query([head])
    query = (
        select(Checkpoint.id)
        .join(line, on_line(line))
        .where(Checkpoint.state == CheckpointState.COMMITTED.value, Checkpoint.quarantined.is_(False))
        .order_by(Checkpoint.sequence.desc())
        .limit(2)
    )
    return list(session.scalars(query))


def _summary(session: Session, checkpoint_id: str) -> CheckpointSummary:
    [found] = summaries(session, load_places(session, places().where(Checkpoint.id == checkpoint_id)))
    return found


def _resumed_by(session: Session, checkpoint: Checkpoint) -> list[str]:
    query = (
        select(Attempt.id)
        .where(Attempt.run_id == checkpoint.run_id, Attempt.decision == checkpoint.id)
        .order_by(Attempt.number.desc())
        .limit(_LISTED_ATTEMPTS)
    )
    return list(session.scalars(query))


def _children(session: Session, checkpoint: Checkpoint) -> int:
    query = select(func.count()).where(Checkpoint.run_id == checkpoint.run_id, Checkpoint.parent_id == checkpoint.id)
    return session.scalars(query).one()


def _refusal(checkpoint: Checkpoint) -> str | None:
    if not checkpoint.pinned:
        return None
    return f"it is pinned ({checkpoint.pin_reason or 'no reason given'}); unpin it first"
