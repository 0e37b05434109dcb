"""Requests to save now: made from outside the training job, taken up by the next checkpoint that it opens.

A request belongs to the attempt that is current when it is made; a newer attempt begins without one, since what it
trains on is older than what was asked for. All changes are made under the lock of the run: here, and where a checkpoint
is opened (`checkpoints/opening.py`). That a save was aborted is not written anywhere: a request whose checkpoint was
aborted waits again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointState, SaveRequestInfo, SaveRequestState
from shardkeep_service.access.audit import record
from shardkeep_service.access.principal import UNSEEN, Principal
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.database.database import Database
from shardkeep_service.errors import Refusal
from shardkeep_service.moments import moment
from shardkeep_service.runs import repository
from shardkeep_service.runs.attempts import check_current, find_attempt
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.runs.models import Attempt, Run
from shardkeep_service.runs.service import find_run
from shardkeep_service.service_context import ServiceContext

_NOTHING_TRAINS: Final = SaveRequestInfo(
    attempt_id=None, number=0, state="none", requested_at=None, requested_by=None, checkpoint_id=None
)
_BOARD_PREFIX: Final = "save-request:"


def request_save(
    context: ServiceContext, principal: Principal, project: str, run: str, *, number: int | None = None
) -> SaveRequestInfo:
    """Asks the run's current attempt to save at its next step; Refusal `no_attempt` where there is none.

    While a request waits, asking again is the same request. One that a checkpoint has taken up is no more answered
    with: that checkpoint holds an older state, so asking again is a new request. But whoever repeats a request whose
    answer was lost means the one that was taken up: `number` says so, and the answer is what became of it.
    """
    with context.database.read() as session:
        _, found = find_run(session, principal, project, run)
    with context.database.write() as session:
        locked = repository.lock_run(session, found.id)
        if locked.deleted_at is not None:  # since it was found
            raise Refusal(ErrorCode.UNKNOWN_RUN, UNSEEN[ErrorCode.UNKNOWN_RUN])
        if locked.current_attempt_id is None:
            raise _no_attempt(locked)
        attempt, state = _attempt_with_state(session, locked.current_attempt_id)
        asks = _is_new(attempt, state, number)
        if asks:
            _ask(session, principal, locked, attempt, now=context.database.now(session))
        info = _info(attempt, "waiting" if asks else state)
    if asks:
        context.board.notify(board_key(attempt.id))
    return info


def present_request(context: ServiceContext, principal: Principal, project: str, run: str) -> SaveRequestInfo:
    """The last request of the run's current attempt, and what became of it."""
    with context.database.read() as session:
        _, found = find_run(session, principal, project, run)
        if found.current_attempt_id is None:
            return _NOTHING_TRAINS
        return _info(*_attempt_with_state(session, found.current_attempt_id))


@dataclass(frozen=True, slots=True)
class RequestLook:
    """The last request of an attempt at one moment, or why the attempt may save no more."""

    info: SaveRequestInfo
    refusal: Refusal | None

    def has_news(self, known: int) -> bool:
        """Whether there is something to tell to training that knows request `known`."""
        return self.refusal is not None or self.info.number > known

    def answer(self) -> SaveRequestInfo:
        """The request; refuses a fenced attempt and one of a deleted run."""
        if self.refusal is not None:
            raise self.refusal
        return self.info


def look_at_attempt(context: ServiceContext, principal: Principal, attempt_id: str) -> RequestLook:
    """The attempt's last request; refuses an attempt that the token may not see."""
    with context.database.read() as session:
        find_attempt(session, principal, attempt_id)
        return _look(session, attempt_id)


def load_look(database: Database, key: str) -> RequestLook:
    """The same for an attempt that was seen before, by its board key."""
    with database.read() as session:
        return _look(session, key.removeprefix(_BOARD_PREFIX))


def board_key(attempt_id: str) -> str:
    """What long polls for requests of an attempt wait on."""
    return f"{_BOARD_PREFIX}{attempt_id}"


def request_waits(attempt: Attempt, taken_up_in: str | None) -> bool:
    """Whether the next checkpoint takes up the attempt's request. `taken_up_in`: the state of the one that did."""
    return _state(attempt, taken_up_in) == "waiting"


def _is_new(attempt: Attempt, state: SaveRequestState, number: int | None) -> bool:
    """Whether asking now is a request of its own; refuses a number that was not counted from this attempt's requests.

    Such a one is told to look again, and not taken for a new request: its repetition could not be told from it.
    """
    if number is None:
        return state != "waiting"
    if number > attempt.save_requests + 1:
        raise _counted_elsewhere(attempt, number)
    return number > attempt.save_requests


def _state(attempt: Attempt, taken_up_in: str | None) -> SaveRequestState:
    if attempt.save_requests == 0:
        return "none"
    if attempt.save_request_checkpoint_id is None or taken_up_in == CheckpointState.ABORTED.value:
        return "waiting"
    return "saving" if taken_up_in in UNFINISHED else "done"


def _attempt_with_state(session: Session, attempt_id: str) -> tuple[Attempt, SaveRequestState]:
    query = (
        select(Attempt, Checkpoint.state)
        .outerjoin(Checkpoint, Checkpoint.id == Attempt.save_request_checkpoint_id)
        .where(Attempt.id == attempt_id)
    )
    attempt, taken_up_in = session.execute(query).one()
    return attempt, _state(attempt, taken_up_in)


def _ask(session: Session, principal: Principal, run: Run, attempt: Attempt, *, now: int) -> None:
    attempt.save_requests += 1
    attempt.save_requested_at = now
    attempt.save_requested_by = principal.name
    attempt.save_request_checkpoint_id = None
    detail = {"run": run.name, "attempt": attempt.id, "number": attempt.save_requests}
    record(session, principal, "run.request_save", target=run.id, project_id=run.project_id, detail=detail)


def _info(attempt: Attempt, state: SaveRequestState) -> SaveRequestInfo:
    return SaveRequestInfo(
        attempt_id=attempt.id,
        number=attempt.save_requests,
        state=state,
        requested_at=moment(attempt.save_requested_at),
        requested_by=attempt.save_requested_by,
        checkpoint_id=attempt.save_request_checkpoint_id,
    )


def _look(session: Session, attempt_id: str) -> RequestLook:
    attempt, state = _attempt_with_state(session, attempt_id)
    try:
        check_current(session.get_one(Run, attempt.run_id), attempt)
    except Refusal as refusal:
        return RequestLook(_info(attempt, state), refusal)
    return RequestLook(_info(attempt, state), None)


def _counted_elsewhere(attempt: Attempt, number: int) -> Refusal:
    return Refusal(
        ErrorCode.ATTEMPT_FENCED,
        f"request {number} was counted for an attempt that is fenced: the current one, {attempt.id}, had"
        f" {attempt.save_requests} so far; look at the last request again, then ask",
    )


def _no_attempt(run: Run) -> Refusal:
    return Refusal(
        ErrorCode.NO_ATTEMPT,
        f"nothing has begun to train run {run.name!r} ({run.id}), so nobody can save it; ask once training has resumed",
    )
