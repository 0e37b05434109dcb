"""Finding the checkpoint that a step means."""

from __future__ import annotations

from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import CheckpointNotCommitted, NotFound
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointInfo, CheckpointState, CheckpointSummary


def newest_of_step(service: ServiceClient, project: str, run: str, step: int) -> CheckpointInfo:
    """The committed checkpoint of a step, one on the current line before others; never another step's."""
    found = [summary for summary in service.checkpoints(project, run, step=step) if summary.step == step]
    committed = [summary for summary in found if summary.state is CheckpointState.COMMITTED and not summary.quarantined]
    if committed:
        chosen = max(committed, key=lambda summary: (summary.on_line, summary.sequence or 0))
        return service.checkpoint(chosen.id)
    if not found:
        raise NotFound(
            f"{project}/{run} has no checkpoint of step {step}",
            code=ErrorCode.UNKNOWN_CHECKPOINT,
            status=404,
        )
    raise not_committed(found[0])


def not_committed(summary: CheckpointSummary) -> CheckpointNotCommitted:
    """The error for a checkpoint that exists and cannot be read."""
    return CheckpointNotCommitted(
        f"checkpoint {summary.id} of step {summary.step} in {summary.project}/{summary.run} is "
        f"{'quarantined' if summary.quarantined else summary.state.value}, so it cannot be read; "
        "run.latest() gives the last that can",
        code=ErrorCode.CHECKPOINT_NOT_COMMITTED,
        status=404,
        extra={"checkpoint_id": summary.id, "state": summary.state.value},
    )
