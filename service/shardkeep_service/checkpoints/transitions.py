"""Deleting, restoring, pinning and unpinning: each carries the version it saw, and repeating it changes nothing.

Deleting is soft. It may hit the parent of an open checkpoint or what the current attempt resumed from: no byte goes,
and the
purge (which waits) spares both. So nothing that a committed or open checkpoint needs is lost, and a resume stays as
decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointInfo, CheckpointState
from shardkeep_service.access import audit
from shardkeep_service.access.principal import UNSEEN, Principal
from shardkeep_service.checkpoints.deletion import delete_now, note_change, restore_now
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.checkpoints.reading import not_committed
from shardkeep_service.checkpoints.repository import find_checkpoint, lock_checkpoint, step_is_committed
from shardkeep_service.checkpoints.unconfirmed import accept_now, discard_now, is_unconfirmed, was_discarded
from shardkeep_service.checkpoints.views import checkpoint_info
from shardkeep_service.errors import Refusal
from shardkeep_service.runs.attempts import check_current, run_deleted
from shardkeep_service.runs.models import Attempt, Run
from shardkeep_service.runs.repository import lock_run
from shardkeep_service.seen_versions import check_version
from shardkeep_service.service_context import ServiceContext

_KEPT: Final = (CheckpointState.COMMITTED.value, CheckpointState.DELETED.value)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the caller knew: the version, and the attempt it acts for, if it does."""

    version: int
    attempt_id: str | None = None


Apply = Callable[[Session, Checkpoint, int], None]
"""Changes a locked checkpoint at a moment of database time, or refuses."""


def delete_checkpoint(context: ServiceContext, principal: Principal, checkpoint_id: str, seen: Seen) -> CheckpointInfo:
    """Deletes a committed checkpoint, restorable until it is purged; refuses a pinned one. An unconfirmed one ends."""
    return _change(context, principal, checkpoint_id, seen, "checkpoint.delete", _is_deleted, _delete)


def restore_checkpoint(context: ServiceContext, principal: Principal, checkpoint_id: str, seen: Seen) -> CheckpointInfo:
    """Undoes a delete."""
    return _change(context, principal, checkpoint_id, seen, "checkpoint.restore", _is_committed, _restore)


def accept_checkpoint(context: ServiceContext, principal: Principal, checkpoint_id: str, seen: Seen) -> CheckpointInfo:
    """Commits what a rebuild found whole without a record of its commit."""
    return _change(context, principal, checkpoint_id, seen, "checkpoint.accept", _is_committed, accept_now)


def pin_checkpoint(
    context: ServiceContext, principal: Principal, checkpoint_id: str, seen: Seen, *, reason: str
) -> CheckpointInfo:
    """Keeps a committed checkpoint whatever retention says; the reason may be changed later."""

    def is_pinned(checkpoint: Checkpoint) -> bool:
        return checkpoint.pinned and checkpoint.pin_reason == reason

    def pin(session: Session, checkpoint: Checkpoint, _now: int) -> None:
        if checkpoint.state != CheckpointState.COMMITTED.value:
            raise not_committed(session, checkpoint)
        checkpoint.pinned = True
        checkpoint.pin_reason = reason
        note_change(session, checkpoint)

    return _change(context, principal, checkpoint_id, seen, "checkpoint.pin", is_pinned, pin)


def unpin_checkpoint(context: ServiceContext, principal: Principal, checkpoint_id: str, seen: Seen) -> CheckpointInfo:
    """Leaves a checkpoint to retention again."""
    return _change(context, principal, checkpoint_id, seen, "checkpoint.unpin", _is_unpinned, _unpin)


def _change(
    context: ServiceContext,
    principal: Principal,
    checkpoint_id: str,
    seen: Seen,
    action: str,
    is_done: Callable[[Checkpoint], bool],
    apply: Apply,
) -> CheckpointInfo:
    """Applies one change under the locks of the run and the checkpoint.

    Done already and at the version seen, or one later: a repetition, answered with the present state. At another
    version: 412.
    """
    with context.database.read() as session:
        run_id = find_checkpoint(session, principal, checkpoint_id).run_id
    with context.database.write() as session:
        run = lock_run(session, run_id)
        checkpoint = lock_checkpoint(session, checkpoint_id)
        _check_fence(session, run, seen.attempt_id)
        if not (is_done(checkpoint) and checkpoint.version in (seen.version, seen.version + 1)):
            _check_version(checkpoint, seen.version)
            if run.deleted_at is not None:
                raise run_deleted(run)
            apply(session, checkpoint, context.database.now(session))
            _record(session, principal, action, checkpoint)
            session.flush()
        return checkpoint_info(session, checkpoint_id)


def _record(session: Session, principal: Principal, action: str, checkpoint: Checkpoint) -> None:
    detail = {"step": checkpoint.step, "version": checkpoint.version}
    audit.record(session, principal, action, target=checkpoint.id, project_id=checkpoint.project_id, detail=detail)


def _check_fence(session: Session, run: Run, attempt_id: str | None) -> None:
    if attempt_id is None:
        return
    attempt = session.get(Attempt, attempt_id)
    if attempt is None or attempt.run_id != run.id:
        raise Refusal(ErrorCode.UNKNOWN_ATTEMPT, UNSEEN[ErrorCode.UNKNOWN_ATTEMPT])
    check_current(run, attempt)


def _check_version(checkpoint: Checkpoint, version: int) -> None:
    what = f"checkpoint {checkpoint.id} is {checkpoint.state}"
    check_version(checkpoint.version, version, what=what, checkpoint_id=checkpoint.id, state=checkpoint.state)


def _is_deleted(checkpoint: Checkpoint) -> bool:
    return checkpoint.state == CheckpointState.DELETED.value or was_discarded(checkpoint)


def _is_committed(checkpoint: Checkpoint) -> bool:
    return checkpoint.state == CheckpointState.COMMITTED.value


def _is_unpinned(checkpoint: Checkpoint) -> bool:
    return not checkpoint.pinned


def _delete(session: Session, checkpoint: Checkpoint, now: int) -> None:
    if is_unconfirmed(checkpoint):
        discard_now(checkpoint)
        return
    if checkpoint.state != CheckpointState.COMMITTED.value:
        raise not_committed(session, checkpoint)
    if checkpoint.pinned:
        raise Refusal(
            ErrorCode.CHECKPOINT_PINNED,
            f"checkpoint {checkpoint.id} of step {checkpoint.step} is pinned"
            f" ({checkpoint.pin_reason or 'no reason given'});"
            " unpin it first",
            checkpoint_id=checkpoint.id,
        )
    delete_now(session, checkpoint, now=now)


def _restore(session: Session, checkpoint: Checkpoint, _now: int) -> None:
    if checkpoint.state != CheckpointState.DELETED.value:
        raise not_committed(session, checkpoint)
    if step_is_committed(session, checkpoint.attempt_id, checkpoint.step, besides=checkpoint.id):
        raise Refusal(
            ErrorCode.STEP_ALREADY_COMMITTED,
            f"step {checkpoint.step} was saved again by the same attempt after checkpoint {checkpoint.id} was"
            " deleted; delete"
            " that one first if this one should stand for the step",
            checkpoint_id=checkpoint.id,
        )
    restore_now(session, checkpoint)


def _unpin(session: Session, checkpoint: Checkpoint, _now: int) -> None:
    if checkpoint.state not in _KEPT:
        raise not_committed(session, checkpoint)
    checkpoint.pinned = False
    checkpoint.pin_reason = None
    note_change(session, checkpoint)
