"""Checkpoints as the protocol shows them: summaries for lists, the whole for one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy.orm import Session

from shardkeep.protocol.messages import AbortInfo, CheckpointInfo, CheckpointReport, CheckpointState, CheckpointSummary
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.checkpoints.repository import CheckpointPlace, arrived_ranks, load_places, places, tags_of
from shardkeep_service.moments import moment
from shardkeep_service.runs.lines import on_their_lines

WERE_COMPLETE = (
    CheckpointState.COMMITTED.value,
    CheckpointState.DELETED.value,
    CheckpointState.PURGED.value,
    CheckpointState.UNCONFIRMED.value,
)


def summaries(session: Session, found: Sequence[CheckpointPlace]) -> list[CheckpointSummary]:
    """Summaries in the same order, in a number of queries that does not depend on theirs."""
    standing = on_their_lines(session, [place.checkpoint for place in found])
    tags = tags_of(session, [place.checkpoint.id for place in found])
    return [
        CheckpointSummary(
            **_summary_fields(place, on_line=place.checkpoint.id in standing, tags=tags[place.checkpoint.id])
        )
        for place in found
    ]


def checkpoint_info(session: Session, checkpoint_id: str) -> CheckpointInfo:
    """One checkpoint, whole."""
    [place] = load_places(session, places().where(Checkpoint.id == checkpoint_id))
    checkpoint = place.checkpoint
    on_line = checkpoint.id in on_their_lines(session, [checkpoint])
    missing = missing_ranks(checkpoint, arrived_ranks(session, [checkpoint.id]).get(checkpoint.id, ()))
    return CheckpointInfo(
        **_summary_fields(place, on_line=on_line, tags=tags_of(session, [checkpoint.id])[checkpoint.id]),
        parent_id=checkpoint.parent_id,
        arrived=checkpoint.arrived,
        missing_ranks=missing,
        abort=abort_info(checkpoint),
        report=None if checkpoint.report is None else CheckpointReport(**checkpoint.report),
        environment=checkpoint.environment,
        tensors=checkpoint.tensors,
        pin_reason=checkpoint.pin_reason,
        deleted_at=moment(checkpoint.deleted_at),
        deletion_reason=checkpoint.deletion_reason,
    )


def missing_ranks(checkpoint: Checkpoint, arrived: Collection[int], *, limit: int | None = None) -> list[int]:
    """Ranks whose manifest has not arrived, ascending, at most `limit`; none once it was complete."""
    if checkpoint.state in WERE_COMPLETE or checkpoint.arrived == checkpoint.world_size:
        return []
    missing = []
    for rank in range(checkpoint.world_size):
        if rank not in arrived:
            missing.append(rank)
            if len(missing) == limit:
                break
    return missing


def abort_info(checkpoint: Checkpoint) -> AbortInfo | None:
    """Why it was aborted, if it was."""
    return None if checkpoint.abort is None else AbortInfo(**checkpoint.abort)


def _summary_fields(place: CheckpointPlace, *, on_line: bool, tags: list[str]) -> dict[str, Any]:
    checkpoint = place.checkpoint
    return {
        "id": checkpoint.id,
        "project": place.project,
        "run": place.run,
        "attempt_id": checkpoint.attempt_id,
        "attempt_number": place.attempt_number,
        "save": checkpoint.save,
        "step": checkpoint.step,
        "world_size": checkpoint.world_size,
        "state": CheckpointState(checkpoint.state),
        "sequence": checkpoint.sequence,
        "on_line": on_line,
        "pinned": checkpoint.pinned,
        "tags": tags,
        "quarantined": checkpoint.quarantined,
        "opened_at": moment(checkpoint.opened_at),
        "committed_at": moment(checkpoint.committed_at),
        "raw_bytes": checkpoint.raw_bytes,
        "stored_bytes": checkpoint.stored_bytes,
        "new_bytes": checkpoint.new_bytes,
        "metrics": checkpoint.metrics,
        "version": checkpoint.version,
    }
