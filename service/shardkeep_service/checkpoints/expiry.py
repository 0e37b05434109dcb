"""Expiry: an open checkpoint whose rank fell silent, or never came, or that is open too long, is aborted.

Its ranks are named. Collection counts on the limit: see `garbage_collection/horizon.py`.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, and_, func, select, update
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import AbortInfo, CheckpointState
from shardkeep_service.checkpoints.aborting import NAMED_LIMIT, abort_now
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow, RankSession
from shardkeep_service.checkpoints.repository import lock_checkpoint, opened_ranks
from shardkeep_service.moments import micros
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from shardkeep_service.worker.models import Lease

EXPIRY: Final = "expiry"
"""The name of the task, by which workers hold its lease."""
_SHOWN = 10


def expire_checkpoints(context: ServiceContext) -> list[str]:
    """Aborts what has lapsed by database time; returns the ids. One transaction per checkpoint.

    When nobody has looked for long, the database or all workers were gone, and maybe no rank could renew its session:
    then every open checkpoint gets a whole lease first.
    """
    if _nobody_looked(context):
        forgive_outage(context)
    with context.database.read() as session:
        candidates = _candidates(session, context.settings, context.database.now(session))
    return [checkpoint_id for checkpoint_id in candidates if _expire(context, checkpoint_id)]


def forgive_outage(context: ServiceContext) -> None:
    """Gives every open checkpoint a whole lease from now on, since nobody could renew one while no service ran.

    At the start of a service that is the only one of its database, and when a worker finds that expiry is overdue.
    """
    with context.database.write() as session:
        until = context.database.now(session) + micros(context.settings.lease_seconds)
        is_open = Checkpoint.state == CheckpointState.OPEN.value
        ids = select(Checkpoint.id).where(is_open)
        session.execute(
            update(RankSession)
            .where(RankSession.checkpoint_id.in_(ids), RankSession.lease_until < until)
            .values(lease_until=until)
        )
        session.execute(update(Checkpoint).where(is_open, Checkpoint.deadline < until).values(deadline=until))


def _nobody_looked(context: ServiceContext) -> bool:
    """Whether the worker's lease of this task says that it is overdue by half the lease of a session."""
    with context.database.read() as session:
        due_at = session.scalars(select(Lease.due_at).where(Lease.name == EXPIRY)).one_or_none()
        overdue = 0 if due_at is None else context.database.now(session) - due_at
    return overdue > micros(context.settings.lease_seconds / 2)


def _expire(context: ServiceContext, checkpoint_id: str) -> bool:
    """Whether it was still lapsed under its lock, and is aborted now."""
    with context.database.write() as session:
        checkpoint = lock_checkpoint(session, checkpoint_id)
        if checkpoint.state != CheckpointState.OPEN.value:
            return False
        info = _reason(session, context.settings, checkpoint, context.database.now(session))
        if info is None:
            return False
        abort_now(session, checkpoint, info)
    context.board.notify(checkpoint_id)
    context.metrics.checkpoints.labels(info.code).inc()
    return True


def open_too_long(settings: Settings, checkpoint: Checkpoint, now: int) -> AbortInfo | None:
    """Why a checkpoint must be aborted that has been open longer than any may be; None while it may go on."""
    if checkpoint.opened_at >= now - micros(settings.open_limit_seconds):
        return None
    return AbortInfo(
        code=ErrorCode.OPEN_TOO_LONG,
        reason=f"it was open for longer than {settings.open_limit_seconds:g} s (open_limit_seconds of the service):"
        f" {checkpoint.arrived} of {checkpoint.world_size} manifests had arrived",
    )


def _candidates(session: Session, settings: Settings, now: int) -> list[str]:
    sessions = select(func.count()).where(RankSession.checkpoint_id == Checkpoint.id).scalar_subquery()
    late = select(Checkpoint.id).where(
        Checkpoint.state == CheckpointState.OPEN.value, Checkpoint.deadline < now, sessions < Checkpoint.world_size
    )
    lapsed = (
        select(RankSession.checkpoint_id)
        .join(Checkpoint, Checkpoint.id == RankSession.checkpoint_id)
        .outerjoin(ManifestRow, _same_rank())
        .where(
            Checkpoint.state == CheckpointState.OPEN.value, RankSession.lease_until < now, ManifestRow.rank.is_(None)
        )
    )
    old = select(Checkpoint.id).where(
        Checkpoint.state == CheckpointState.OPEN.value,
        Checkpoint.opened_at < now - micros(settings.open_limit_seconds),
    )
    return sorted({*session.scalars(late), *session.scalars(lapsed.distinct()), *session.scalars(old)})


def _reason(session: Session, settings: Settings, checkpoint: Checkpoint, now: int) -> AbortInfo | None:
    too_long = open_too_long(settings, checkpoint, now)
    if too_long is not None:
        return too_long
    lapsed = _lapsed_ranks(session, checkpoint.id, now)
    if lapsed:
        return AbortInfo(
            code=ErrorCode.SESSION_LAPSED,
            reason=f"{_named(lapsed)} sent nothing for longer than the lease, before the manifest arrived",
            rank=lapsed[0],
            ranks=lapsed[:NAMED_LIMIT],
        )
    if checkpoint.deadline >= now:
        return None
    opened = opened_ranks(session, checkpoint.id)
    absent = [rank for rank in range(checkpoint.world_size) if rank not in opened]
    if not absent:
        return None
    return AbortInfo(
        code=ErrorCode.RANKS_MISSING,
        reason=f"{_named(absent)} of {checkpoint.world_size} did not open it by the deadline",
        rank=absent[0],
        ranks=absent[:NAMED_LIMIT],
    )


def _lapsed_ranks(session: Session, checkpoint_id: str, now: int) -> list[int]:
    query = (
        select(RankSession.rank)
        .outerjoin(ManifestRow, _same_rank())
        .where(RankSession.checkpoint_id == checkpoint_id, RankSession.lease_until < now, ManifestRow.rank.is_(None))
        .order_by(RankSession.rank)
    )
    return list(session.scalars(query))


def _same_rank() -> ColumnElement[bool]:
    return and_(ManifestRow.checkpoint_id == RankSession.checkpoint_id, ManifestRow.rank == RankSession.rank)


def _named(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN]))
    more = f" and {len(ranks) - _SHOWN} more" if len(ranks) > _SHOWN else ""
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}{more}"
