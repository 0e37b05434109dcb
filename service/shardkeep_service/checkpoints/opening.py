"""Opening checkpoints: (attempt, save) is the checkpoint; the first rank creates it, the others join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.identifiers import new_id
from shardkeep.protocol.messages import CheckpointState, OpenAnswer, OpenCheckpoint
from shardkeep_service.access.audit import record
from shardkeep_service.access.principal import UNSEEN, Principal
from shardkeep_service.access.quotas import reserve_checkpoint
from shardkeep_service.catalogue.outbox import record_open
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow, RankSession
from shardkeep_service.checkpoints.repository import step_is_committed
from shardkeep_service.errors import Refusal
from shardkeep_service.moments import micros
from shardkeep_service.observability.request_ids import current_request_id
from shardkeep_service.runs.attempts import check_current
from shardkeep_service.runs.lines import last_on_lines
from shardkeep_service.runs.models import Attempt, Run
from shardkeep_service.runs.repository import lock_runs
from shardkeep_service.runs.save_requests import request_waits
from shardkeep_service.service_context import ServiceContext


@dataclass(frozen=True, slots=True)
class Opening:
    """One rank's wish to take part in a save."""

    principal: Principal
    attempt_id: str
    body: OpenCheckpoint
    request_id: str | None = field(default_factory=current_request_id)


@dataclass(slots=True)
class _Loaded:
    """What a batch of openings needs to know, read once under the locks of the runs."""

    attempts: dict[str, tuple[Attempt, Run]]
    requested: set[str]
    """The attempts whose next checkpoint takes up a request to save now."""
    checkpoints: dict[tuple[str, int], Checkpoint]
    arrived: set[tuple[str, int]] = field(default_factory=set)
    sessions: dict[tuple[str, int], RankSession] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpeningWriter:
    """Writes a batch of openings in a number of statements that does not depend on the number of ranks."""

    context: ServiceContext

    def __call__(self, session: Session, openings: Sequence[Opening]) -> list[OpenAnswer | Refusal]:
        """The checkpoint of each opening, or why it is refused."""
        loaded = _load(session, openings)
        now = self.context.database.now(session)
        found: list[Checkpoint | Refusal] = []
        for opening in openings:
            try:
                found.append(self._checkpoint_of(session, loaded, opening, now=now))
            except Refusal as refusal:
                found.append(refusal)
        session.flush()
        self._renew(session, loaded, openings, found, now=now)
        return [
            outcome if isinstance(outcome, Refusal) else self._answer(loaded, outcome, opening.body.rank)
            for opening, outcome in zip(openings, found, strict=True)
        ]

    def _checkpoint_of(self, session: Session, loaded: _Loaded, opening: Opening, *, now: int) -> Checkpoint:
        attempt, run = _attempt_of(loaded, opening)
        _check_opening(attempt, run, opening.body)
        key = (attempt.id, opening.body.save)
        checkpoint = loaded.checkpoints.get(key)
        if checkpoint is None:
            checkpoint = self._create(session, attempt, run, opening, now=now)
            loaded.checkpoints[key] = checkpoint
            if attempt.id in loaded.requested:
                loaded.requested.discard(attempt.id)
                attempt.save_request_checkpoint_id = checkpoint.id
        elif checkpoint.step != opening.body.step:
            raise _step_disagrees(checkpoint, opening.body)
        return checkpoint

    def _create(self, session: Session, attempt: Attempt, run: Run, opening: Opening, *, now: int) -> Checkpoint:
        body = opening.body
        if step_is_committed(session, attempt.id, body.step):
            raise _step_already_committed(attempt, body.step)
        reserve_checkpoint(session, run.project_id)
        parent = last_on_lines(session, [attempt.id]).get(attempt.id)
        run.opened += 1
        checkpoint = Checkpoint(
            id=new_id("ckp"),
            project_id=run.project_id,
            run_id=run.id,
            attempt_id=attempt.id,
            number=run.opened,
            save=body.save,
            step=body.step,
            world_size=body.world_size,
            state=CheckpointState.OPEN.value,
            parent_id=None if parent is None else parent.id,
            opened_at=now,
            deadline=now + micros(self.context.settings.open_deadline_seconds),
            arrived=0,
            metrics={},
            environment={},
            pinned=False,
            quarantined=False,
            version=1,
        )
        session.add(checkpoint)
        record_open(session, checkpoint.id)
        record(
            session,
            opening.principal,
            "checkpoint.open",
            target=checkpoint.id,
            project_id=run.project_id,
            detail={"run": run.name, "step": body.step},
            request_id=opening.request_id,
        )
        return checkpoint

    def _renew(
        self,
        session: Session,
        loaded: _Loaded,
        openings: Sequence[Opening],
        found: Sequence[Checkpoint | Refusal],
        *,
        now: int,
    ) -> None:
        places = {
            (outcome.id, opening.body.rank)
            for opening, outcome in zip(openings, found, strict=True)
            if not isinstance(outcome, Refusal)
        }
        lease_until = now + micros(self.context.settings.lease_seconds)
        _load_ranks(session, loaded, sorted(places))
        open_ids = {row.id for row in loaded.checkpoints.values() if row.state == CheckpointState.OPEN.value}
        for checkpoint_id, rank in sorted(places):
            known = loaded.sessions.get((checkpoint_id, rank))
            if known is not None:
                known.lease_until = max(known.lease_until, lease_until)
            elif checkpoint_id in open_ids:
                session.add(RankSession(checkpoint_id=checkpoint_id, rank=rank, opened_at=now, lease_until=lease_until))

    def _answer(self, loaded: _Loaded, checkpoint: Checkpoint, rank: int) -> OpenAnswer:
        return OpenAnswer(
            checkpoint_id=checkpoint.id,
            state=CheckpointState(checkpoint.state),
            parent_id=checkpoint.parent_id,
            lease_seconds=self.context.settings.lease_seconds,
            arrived=(checkpoint.id, rank) in loaded.arrived,
        )


def _load(session: Session, openings: Sequence[Opening]) -> _Loaded:
    """Locks the runs, so that no attempt begins and no other replica creates in between; then the checkpoints, so that
    none ends while ranks join it.
    """
    attempt_ids = {opening.attempt_id for opening in openings}
    run_ids = select(Attempt.run_id).where(Attempt.id.in_(attempt_ids))
    runs = lock_runs(session, run_ids)
    attempts = session.execute(
        select(Attempt, Checkpoint.state)
        .outerjoin(Checkpoint, Checkpoint.id == Attempt.save_request_checkpoint_id)
        .where(Attempt.id.in_(attempt_ids))
    ).all()
    keys = {(opening.attempt_id, opening.body.save) for opening in openings}
    query = select(Checkpoint).where(tuple_(Checkpoint.attempt_id, Checkpoint.save).in_(keys))
    query = query.order_by(Checkpoint.id).with_for_update(key_share=True)
    return _Loaded(
        attempts={attempt.id: (attempt, runs[attempt.run_id]) for attempt, _ in attempts},
        requested={attempt.id for attempt, taken_up_in in attempts if request_waits(attempt, taken_up_in)},
        checkpoints={(row.attempt_id, row.save): row for row in session.scalars(query)},
    )


def _load_ranks(session: Session, loaded: _Loaded, places: Sequence[tuple[str, int]]) -> None:
    checkpoint_ids = {checkpoint_id for checkpoint_id, _ in places}
    ranks = {rank for _, rank in places}
    sessions = select(RankSession).where(RankSession.checkpoint_id.in_(checkpoint_ids), RankSession.rank.in_(ranks))
    loaded.sessions.update({(row.checkpoint_id, row.rank): row for row in session.scalars(sessions)})
    arrived = select(ManifestRow.checkpoint_id, ManifestRow.rank).where(
        ManifestRow.checkpoint_id.in_(checkpoint_ids), ManifestRow.rank.in_(ranks)
    )
    loaded.arrived.update(session.execute(arrived))


def _attempt_of(loaded: _Loaded, opening: Opening) -> tuple[Attempt, Run]:
    found = loaded.attempts.get(opening.attempt_id)
    if found is None or not opening.principal.sees_run(found[1].project_id, found[1].id):
        raise Refusal(ErrorCode.UNKNOWN_ATTEMPT, UNSEEN[ErrorCode.UNKNOWN_ATTEMPT])
    return found


def _check_opening(attempt: Attempt, run: Run, body: OpenCheckpoint) -> None:
    check_current(run, attempt)
    if attempt.decision is None:
        raise Refusal(
            ErrorCode.RESUME_UNDECIDED,
            f"attempt {attempt.id} has not decided what it resumes from; resume (or say fresh=true) before the first"
            " save",
        )
    if body.world_size != attempt.world_size:
        raise Refusal(
            ErrorCode.WORLD_SIZE_DISAGREES,
            f"attempt {attempt.id} has world size {attempt.world_size}, rank {body.rank} says {body.world_size}; all"
            " ranks of"
            " an attempt must agree, begin another attempt for another world",
        )
    if body.rank >= body.world_size:
        raise Refusal(
            ErrorCode.RANK_OUT_OF_RANGE,
            f"rank {body.rank} is outside the world of {body.world_size}; its ranks count from 0 to"
            f" {body.world_size - 1}",
        )


def _step_disagrees(checkpoint: Checkpoint, body: OpenCheckpoint) -> Refusal:
    return Refusal(
        ErrorCode.STEP_DISAGREES,
        f"save {checkpoint.save} was opened for step {checkpoint.step}, rank {body.rank} says step {body.step}; all"
        " ranks must"
        " count steps and saves alike",
        checkpoint_id=checkpoint.id,
    )


def _step_already_committed(attempt: Attempt, step: int) -> Refusal:
    return Refusal(
        ErrorCode.STEP_ALREADY_COMMITTED,
        f"attempt {attempt.number} has committed step {step} already; a step is saved once per attempt, delete the"
        " other"
        " checkpoint first if this one should stand for it",
    )
