"""What the planner needs to know of a run, read in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.checkpoints.models import Checkpoint, CheckpointTag
from shardkeep_service.retention.plan import Candidate, Needed
from shardkeep_service.runs.lines import EMPTY_LINE, UNFINISHED, Line, heads_of, last_on_lines, load_lines
from shardkeep_service.runs.models import Attempt, Run


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The committed checkpoints of a run, and what is needed of them whatever a policy says."""

    candidates: Sequence[Candidate]
    needed: Needed


def load_inputs(session: Session, run: Run) -> RunInputs:
    """Lock the run before, where the plan is to be carried out: resuming, saving and pinning lock it too."""
    head = heads_of(session, [run.id]).get(run.id)
    line = load_lines(session, [head])[head] if head else EMPTY_LINE
    latest = last_on_lines(session, [head]).get(head) if head else None
    return RunInputs(
        candidates=_candidates(session, run.id, line),
        needed=Needed(
            latest=None if latest is None else latest.id,
            resumed_from=resumed_from(session, run),
            parents=frozenset(parents_of_unfinished(session, run.id)),
        ),
    )


def resumed_from(session: Session, run: Run) -> str | None:
    """The decision of the run's current attempt, `fresh` too."""
    current = session.get(Attempt, run.current_attempt_id) if run.current_attempt_id else None
    return None if current is None else current.decision


def parents_of_unfinished(session: Session, run_id: str) -> list[str]:
    """The parents of the run's open and validating checkpoints."""
    query = select(Checkpoint.parent_id).where(Checkpoint.run_id == run_id, Checkpoint.state.in_(UNFINISHED))
    return [parent for parent in session.scalars(query) if parent is not None]


def _candidates(session: Session, run_id: str, line: Line) -> list[Candidate]:
    query = select(Checkpoint).where(Checkpoint.run_id == run_id, Checkpoint.state == CheckpointState.COMMITTED.value)
    tags = _tags(session, run_id)
    decided = _decided(session, run_id, line)
    numbers = {attempt_id: number for number, _, attempt_id in _attempts(session, run_id)}
    found: list[Candidate] = []
    for checkpoint in session.scalars(query):
        assert checkpoint.sequence is not None  # the commit gave both
        assert checkpoint.committed_at is not None
        on_line = line.holds(checkpoint)
        left = None if on_line else _left_at(decided, numbers[checkpoint.attempt_id], checkpoint.committed_at)
        found.append(
            Candidate(
                id=checkpoint.id,
                step=checkpoint.step,
                sequence=checkpoint.sequence,
                committed_at=checkpoint.committed_at,
                on_line=on_line,
                off_line_since=left,
                pinned=checkpoint.pinned,
                quarantined=checkpoint.quarantined,
                tags=frozenset(tags[checkpoint.id]),
                metrics=checkpoint.metrics,
            )
        )
    return found


def _tags(session: Session, run_id: str) -> defaultdict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    query = select(CheckpointTag.checkpoint_id, CheckpointTag.tag).where(CheckpointTag.run_id == run_id)
    for checkpoint_id, tag in session.execute(query):
        found[checkpoint_id].add(tag)
    return found


def _attempts(session: Session, run_id: str) -> Sequence[tuple[int, int | None, str]]:
    query = select(Attempt.number, Attempt.decided_at, Attempt.id).where(Attempt.run_id == run_id)
    return [(number, decided_at, id_) for number, decided_at, id_ in session.execute(query.order_by(Attempt.number))]


def _decided(session: Session, run_id: str, line: Line) -> list[tuple[int, int]]:
    """Number of each attempt on the line, and when it decided; ascending."""
    attempts = _attempts(session, run_id)
    return [(number, at) for number, at, attempt_id in attempts if at is not None and attempt_id in line.bounds]


def _left_at(decided: Sequence[tuple[int, int]], number: int, committed_at: int) -> int:
    """When a checkpoint of the attempt `number` was left off the line: as the next attempt on it decided."""
    later = next((at for other, at in decided if other > number), committed_at)
    return max(later, committed_at)
