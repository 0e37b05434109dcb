"""Why checkpoints newer than the chosen one were not chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointState, PassedOver
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.checkpoints.repository import arrived_ranks
from shardkeep_service.checkpoints.views import abort_info, missing_ranks
from shardkeep_service.runs.lines import Line

PASSED_OVER_LIMIT: Final = 100
"""The newest that are told; a run can have thousands."""

DELETED: Final = "deleted"
PURGED: Final = "purged"
QUARANTINED: Final = "quarantined"
UNCONFIRMED: Final = "unconfirmed"
OFF_LINE: Final = "off_line"
NOT_ASKED_FOR: Final = "not_asked_for"
"""Codes beside those of `ErrorCode`: `checkpoint_not_committed` and the reasons of an abort."""


def passed_over(session: Session, run_id: str, line: Line, chosen: Checkpoint | None) -> list[PassedOver]:
    """Each checkpoint of the run newer than `chosen` (all, where nothing was), newest first, with the reason.

    Newer means committed later, or opened later and never committed.
    """
    query = select(Checkpoint).where(Checkpoint.run_id == run_id)
    if chosen is not None:
        never_committed = and_(Checkpoint.sequence.is_(None), Checkpoint.number > chosen.number)
        query = query.where(or_(Checkpoint.sequence > (chosen.sequence or 0), never_committed))
    newer = session.scalars(query.order_by(Checkpoint.number.desc()).limit(PASSED_OVER_LIMIT)).all()
    arrived = arrived_ranks(session, _incomplete(newer))
    return [_reason(checkpoint, line, arrived.get(checkpoint.id, set())) for checkpoint in newer]


def _incomplete(checkpoints: Sequence[Checkpoint]) -> list[str]:
    return [found.id for found in checkpoints if 0 < found.arrived < found.world_size]


def _reason(checkpoint: Checkpoint, line: Line, arrived: set[int]) -> PassedOver:
    missing = missing_ranks(checkpoint, arrived)
    code, reason = _code_and_reason(checkpoint, line)
    return PassedOver(
        checkpoint_id=checkpoint.id,
        step=checkpoint.step,
        attempt_id=checkpoint.attempt_id,
        state=CheckpointState(checkpoint.state),
        code=code,
        reason=reason,
        missing_ranks=missing,
    )


def _code_and_reason(checkpoint: Checkpoint, line: Line) -> tuple[str, str]:
    abort = abort_info(checkpoint)
    if abort is not None:
        return abort.code, abort.reason
    match CheckpointState(checkpoint.state):
        case CheckpointState.DELETED:
            return DELETED, "it was deleted; restore it to use it again"
        case CheckpointState.PURGED:
            return PURGED, "it was deleted and its bytes are gone"
        case CheckpointState.UNCONFIRMED:
            return UNCONFIRMED, (
                "the catalogue was rebuilt, which found it whole but no record of its commit; accept it to use it"
            )
        case CheckpointState.OPEN | CheckpointState.VALIDATING:
            reason = (
                f"it is still {checkpoint.state}: {checkpoint.arrived} of {checkpoint.world_size} manifests arrived"
            )
            return ErrorCode.CHECKPOINT_NOT_COMMITTED, reason
        case _:
            return _reason_of_committed(checkpoint, line)


def _reason_of_committed(checkpoint: Checkpoint, line: Line) -> tuple[str, str]:
    if checkpoint.quarantined:
        return QUARANTINED, "stored bytes that it needs were found damaged"
    if not line.holds(checkpoint):
        return OFF_LINE, "it is not on the line of the run's last attempt; resume from it by its id"
    return NOT_ASKED_FOR, "another checkpoint was asked for by its id"
