"""What a save that did not commit raises."""

from __future__ import annotations

from collections.abc import Sequence

from shardkeep.errors import AttemptFenced, ReplicasDiverged, SaveFailed, ServiceError, ShardkeepError
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import AbortInfo

_FENCED = frozenset({ErrorCode.ATTEMPT_FENCED, ErrorCode.SUPERSEDED})


def error_of_abort(abort: AbortInfo | None, *, step: int) -> ShardkeepError:
    """The error for a checkpoint that was aborted: AttemptFenced, ReplicasDiverged or SaveFailed."""
    if abort is None:
        return SaveFailed(f"the save of step {step} was aborted; the service gave no reason", step=step)
    if abort.code in _FENCED:
        return AttemptFenced(
            f"step {step} was not saved: {abort.reason}. A newer attempt of the run began; this one may never save "
            "again",
            code=ErrorCode.ATTEMPT_FENCED,
            status=409,
        )
    kind = ReplicasDiverged if abort.code == ErrorCode.REPLICAS_DIVERGED else SaveFailed
    rank = abort.rank if abort.rank is not None else next(iter(abort.ranks), None)
    return kind(
        f"step {step} was not saved: {_explained(abort)} [{abort.code}]",
        step=step,
        code=abort.code,
        rank=rank,
        ranks=abort.ranks,
        tensors=abort.tensors,
    )


def error_of_failure(error: Exception, *, step: int, rank: int) -> Exception:
    """What the handle raises for what went wrong here; AttemptFenced and SaveFailed stay themselves."""
    if isinstance(error, AttemptFenced | SaveFailed):
        return error
    code = error.code if isinstance(error, ServiceError) else None
    failed = SaveFailed(
        f"step {step} was not saved by rank {rank}: {error or error!r}", step=step, code=code, rank=rank
    )
    failed.__cause__ = error
    return failed


def _explained(abort: AbortInfo) -> str:
    parts = [abort.reason]
    if abort.ranks:
        parts.append(f"ranks {_shown(list(map(str, abort.ranks)), 16)}")
    elif abort.rank is not None:
        parts.append(f"rank {abort.rank}")
    if abort.tensors:
        parts.append(f"tensors {_shown(abort.tensors, 8)}")
    return "; ".join(parts)


def _shown(texts: Sequence[str], limit: int) -> str:
    return ", ".join(texts[:limit]) + (f" and {len(texts) - limit} more" if len(texts) > limit else "")
