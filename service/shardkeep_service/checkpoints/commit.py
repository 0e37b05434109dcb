"""The commit: one transaction that locks the run, checks everything again and flips the state.

Also the two other ways a validation can end: an abort, and going back to open because chunks were lost meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import AbortInfo, CheckpointState
from shardkeep_service.access.audit import WORKER, record
from shardkeep_service.access.quotas import overdrawn
from shardkeep_service.catalogue.outbox import record_checkpoint
from shardkeep_service.checkpoints.aborting import abort_now, superseded
from shardkeep_service.checkpoints.chunk_ids import Ids, all_stored, digests_of, not_stored, unpack_ids
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow, RankSession
from shardkeep_service.checkpoints.repository import end_sessions, lock_checkpoint, step_is_committed
from shardkeep_service.checkpoints.validation import Damaged, Rejected, Validated
from shardkeep_service.chunks.state_lock import hold_chunk_states
from shardkeep_service.moments import MICROS_PER_SECOND, micros
from shardkeep_service.runs.models import Attempt, Run
from shardkeep_service.runs.repository import lock_run
from shardkeep_service.service_context import ServiceContext


class Ending(StrEnum):
    """How a validation ended. `LOST` means that it was somebody else's to end."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    REOPENED = "reopened"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Committer:
    """Ends validations that this owner holds the lease of."""

    context: ServiceContext
    owner: str

    def end(self, checkpoint_id: str, outcome: Validated | Rejected | Damaged) -> Ending:
        """Commits, aborts or reopens in one transaction; notifies the board after it."""
        with self.context.database.write() as session:
            run = lock_run(session, _run_of(session, checkpoint_id))
            checkpoint = lock_checkpoint(session, checkpoint_id)
            now = self.context.database.now(session)
            if not self._holds_lease(checkpoint, now):
                return Ending.LOST
            ending = self._end_locked(session, run, checkpoint, outcome, now=now)
        if ending is not Ending.LOST:
            self.context.board.notify(checkpoint_id)
            self._count(checkpoint, ending)
        return ending

    def _count(self, checkpoint: Checkpoint, ending: Ending) -> None:
        metrics = self.context.metrics
        if ending is Ending.COMMITTED and checkpoint.committed_at is not None:
            metrics.checkpoints.labels(ending.value).inc()
            metrics.commit_seconds.observe((checkpoint.committed_at - checkpoint.opened_at) / MICROS_PER_SECOND)
        elif ending is Ending.ABORTED and checkpoint.abort is not None:
            metrics.checkpoints.labels(checkpoint.abort["code"]).inc()

    def _holds_lease(self, checkpoint: Checkpoint, now: int) -> bool:
        return (
            checkpoint.state == CheckpointState.VALIDATING.value
            and checkpoint.validation_owner == self.owner
            and checkpoint.validation_until is not None
            and checkpoint.validation_until >= now
        )

    def _end_locked(
        self, session: Session, run: Run, checkpoint: Checkpoint, outcome: Validated | Rejected | Damaged, *, now: int
    ) -> Ending:
        if run.current_attempt_id != checkpoint.attempt_id:
            abort_now(session, checkpoint, _fenced_by(session, run))
            return Ending.ABORTED
        match outcome:
            case Rejected():
                abort_now(session, checkpoint, outcome.abort)
                return Ending.ABORTED
            case Damaged():
                return self._reopen(session, checkpoint, outcome.chunk_ids, now=now)
            case Validated():
                return self._commit(session, run, checkpoint, outcome, now=now)

    def _commit(self, session: Session, run: Run, checkpoint: Checkpoint, validated: Validated, *, now: int) -> Ending:
        if _manifest_digests(session, checkpoint.id) != validated.manifest_digests:
            return Ending.LOST
        if step_is_committed(session, checkpoint.attempt_id, checkpoint.step, besides=checkpoint.id):
            abort_now(session, checkpoint, _step_taken(checkpoint))
            return Ending.ABORTED
        refusal = overdrawn(session, checkpoint.project_id)
        if refusal is not None:
            abort_now(session, checkpoint, AbortInfo(code=refusal.code, reason=refusal.detail))
            return Ending.ABORTED
        hold_chunk_states(session, checkpoint.project_id)
        if not all_stored(session, validated.chunk_ids):
            return self._reopen(session, checkpoint, not_stored(session, validated.chunk_ids), now=now)
        _flip(run, checkpoint, validated, now=now)
        end_sessions(session, [checkpoint.id])
        record_checkpoint(session, checkpoint.id)
        detail = {"run": run.name, "step": checkpoint.step, "sequence": checkpoint.sequence}
        record(session, WORKER, "checkpoint.commit", target=checkpoint.id, project_id=run.project_id, detail=detail)
        return Ending.COMMITTED

    def _reopen(self, session: Session, checkpoint: Checkpoint, lost: Ids, *, now: int) -> Ending:
        """Takes back the manifests that name lost chunks, and tells their ranks which. The others stay arrived.

        Chunks whose very row is gone cannot be named any more: then the checkpoint is aborted.
        """
        digests = digests_of(session, lost)
        if len(digests) < len(lost):
            abort_now(session, checkpoint, _chunks_gone(len(lost) - len(digests)))
            return Ending.ABORTED
        query = select(ManifestRow.rank, ManifestRow.chunk_ids).where(ManifestRow.checkpoint_id == checkpoint.id)
        for rank, packed in session.execute(query).all():
            needed = np.intersect1d(lost, unpack_ids(packed), assume_unique=True).tolist()
            if not needed:
                continue
            session.execute(
                delete(ManifestRow).where(ManifestRow.checkpoint_id == checkpoint.id, ManifestRow.rank == rank)
            )
            missing = [digests[id_] for id_ in needed]
            _set_missing(session, checkpoint.id, rank, missing)
            checkpoint.arrived -= 1
        checkpoint.state = CheckpointState.OPEN.value
        checkpoint.validation_owner = None
        checkpoint.validation_until = None
        checkpoint.version += 1
        lease_until = now + micros(self.context.settings.lease_seconds)
        session.execute(
            update(RankSession).where(RankSession.checkpoint_id == checkpoint.id).values(lease_until=lease_until),
            execution_options={"synchronize_session": False},
        )
        return Ending.REOPENED


def _flip(run: Run, checkpoint: Checkpoint, validated: Validated, *, now: int) -> None:
    run.sequence += 1
    checkpoint.sequence = run.sequence
    checkpoint.state = CheckpointState.COMMITTED.value
    checkpoint.committed_at = now
    checkpoint.validation_owner = None
    checkpoint.validation_until = None
    checkpoint.index_key = validated.index_key
    checkpoint.index_digest = validated.index_digest
    checkpoint.raw_bytes = validated.raw_bytes
    checkpoint.stored_bytes = validated.sizes.stored_bytes
    checkpoint.new_bytes = validated.sizes.new_bytes
    checkpoint.tensors = validated.tensors
    checkpoint.metrics = validated.metrics
    checkpoint.environment = validated.environment
    checkpoint.report = validated.report.model_dump()
    checkpoint.version += 1


def _run_of(session: Session, checkpoint_id: str) -> str:
    return session.scalars(select(Checkpoint.run_id).where(Checkpoint.id == checkpoint_id)).one()


def _manifest_digests(session: Session, checkpoint_id: str) -> dict[int, str]:
    query = select(ManifestRow.rank, ManifestRow.body_digest).where(ManifestRow.checkpoint_id == checkpoint_id)
    return dict(session.execute(query).all())


def _set_missing(session: Session, checkpoint_id: str, rank: int, missing: list[str]) -> None:
    session.execute(
        update(RankSession)
        .where(RankSession.checkpoint_id == checkpoint_id, RankSession.rank == rank)
        .values(missing_chunks=missing),
        execution_options={"synchronize_session": False},
    )


def _fenced_by(session: Session, run: Run) -> AbortInfo:
    assert run.current_attempt_id is not None  # it is another than the checkpoint's
    current = session.scalars(select(Attempt).where(Attempt.id == run.current_attempt_id)).one()
    return superseded(current.number, current.id)


def _chunks_gone(count: int) -> AbortInfo:
    return AbortInfo(
        code=ErrorCode.CHUNKS_MISSING, reason=f"{count} chunks that its manifests name were collected before the commit"
    )


def _step_taken(checkpoint: Checkpoint) -> AbortInfo:
    return AbortInfo(
        code=ErrorCode.STEP_ALREADY_COMMITTED,
        reason=f"another save of this attempt committed step {checkpoint.step} while this one was open",
    )
