"""Aborting a checkpoint: final, told to every rank, and never done to one that is committed."""

from __future__ import annotations

from typing import Final

from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import AbortCheckpoint, AbortInfo, CheckpointState
from shardkeep_service.access.audit import WORKER, record
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.checkpoints.repository import end_sessions, find_checkpoint, lock_checkpoint
from shardkeep_service.errors import Refusal
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.service_context import ServiceContext

NAMED_LIMIT: Final = 100
"""Ranks and tensors that one abort names."""


def abort_checkpoint(context: ServiceContext, principal: Principal, checkpoint_id: str, body: AbortCheckpoint) -> None:
    """Ends an unfinished checkpoint that a rank or somebody gave up. Idempotent; a conflict once it is committed."""
    with context.database.read() as session:
        found = find_checkpoint(session, principal, checkpoint_id)
        if body.rank is not None:
            check_rank(found, body.rank)
    with context.database.write() as session:
        checkpoint = lock_checkpoint(session, checkpoint_id)
        if checkpoint.state == CheckpointState.ABORTED.value:
            return
        if checkpoint.state not in UNFINISHED:
            raise Refusal(
                ErrorCode.CHECKPOINT_NOT_OPEN,
                f"checkpoint {checkpoint.id} of step {checkpoint.step} is {checkpoint.state} and cannot be aborted;"
                " delete it"
                " if it should go",
                state=checkpoint.state,
            )
        abort_now(session, checkpoint, _given_up(body, principal), actor=principal)
    context.board.notify(checkpoint_id)
    context.metrics.checkpoints.labels(ErrorCode.ABORTED_BY_CLIENT.value).inc()


def abort_now(session: Session, checkpoint: Checkpoint, info: AbortInfo, *, actor: Principal | str = WORKER) -> None:
    """Flips a locked, unfinished checkpoint to aborted. Notify its board key after the commit."""
    assert checkpoint.state in UNFINISHED
    checkpoint.state = CheckpointState.ABORTED.value
    checkpoint.abort = info.model_dump()
    checkpoint.validation_owner = None
    checkpoint.validation_until = None
    checkpoint.version += 1
    end_sessions(session, [checkpoint.id])
    detail = {"code": info.code, "step": checkpoint.step}
    record(session, actor, "checkpoint.abort", target=checkpoint.id, project_id=checkpoint.project_id, detail=detail)


def superseded(number: int, attempt_id: str) -> AbortInfo:
    """The abort of a checkpoint whose attempt was fenced."""
    return AbortInfo(
        code=ErrorCode.SUPERSEDED, reason=f"attempt {number} ({attempt_id}) of the run began before it was committed"
    )


def check_rank(checkpoint: Checkpoint, rank: int) -> None:
    """Refusal `rank_out_of_range` unless the checkpoint has such a rank."""
    if rank >= checkpoint.world_size:
        raise Refusal(
            ErrorCode.RANK_OUT_OF_RANGE,
            f"rank {rank} is outside the world of checkpoint {checkpoint.id}, whose ranks count from 0 to"
            f" {checkpoint.world_size - 1}",
        )


def aborted_refusal(checkpoint: Checkpoint) -> Refusal:
    """What a late request to an aborted checkpoint is told."""
    reason = (checkpoint.abort or {}).get("reason", "no reason was kept")
    return Refusal(
        ErrorCode.CHECKPOINT_ABORTED,
        f"checkpoint {checkpoint.id} of step {checkpoint.step} was aborted: {reason}; what arrives now is dropped,"
        " save again",
        state=checkpoint.state,
        abort=checkpoint.abort,
    )


def _given_up(body: AbortCheckpoint, principal: Principal) -> AbortInfo:
    if body.rank is None:
        reason = f"{principal.name} ended it: {body.reason}"
        return AbortInfo(code=ErrorCode.ABORTED_BY_CLIENT, reason=reason)
    return AbortInfo(
        code=ErrorCode.ABORTED_BY_CLIENT,
        reason=f"rank {body.rank} gave up: {body.reason}",
        rank=body.rank,
        ranks=[body.rank],
    )
