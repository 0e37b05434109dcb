"""Lines: an attempt's own checkpoints, then those of the checkpoint it resumed from, back to the start.

A line is resolved by one recursive query, however long the chain of attempts is. It ends at an attempt that began
fresh.
Attempts cannot form a circle: what an attempt resumed from was committed before it decided, and what it commits comes
after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import CTE, BindParameter, ColumnElement, Select, and_, bindparam, cast, func, null, or_, select
from sqlalchemy.orm import Session, aliased

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.database.base import BigInt
from shardkeep_service.runs.models import Attempt

UNFINISHED = (CheckpointState.OPEN.value, CheckpointState.VALIDATING.value)


@dataclass(frozen=True, slots=True)
class Line:
    """For each attempt on the line, the highest commit sequence that belongs to it; None for the head: no bound."""

    bounds: Mapping[str, int | None]

    def holds(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint stands on the line. An unfinished one does only at its head, an aborted one never."""
        if checkpoint.attempt_id not in self.bounds:
            return False
        bound = self.bounds[checkpoint.attempt_id]
        if checkpoint.sequence is None:
            return bound is None and checkpoint.state in UNFINISHED
        return bound is None or checkpoint.sequence <= bound


EMPTY_LINE = Line({})


def line_query(heads: Sequence[str] | BindParameter[Sequence[str]]) -> CTE:
    """Rows (head, attempt_id, bound) of the lines that begin at `heads`."""
    line = (
        select(Attempt.id.label("head"), Attempt.id.label("attempt_id"), cast(null(), BigInt).label("bound"))
        .where(Attempt.id.in_(heads))
        .cte("line", recursive=True)
    )
    origin = aliased(Checkpoint)
    return line.union_all(
        select(line.c.head, origin.attempt_id, origin.sequence)
        .join(Attempt, Attempt.id == line.c.attempt_id)
        .join(origin, origin.id == Attempt.decision)
    )


def on_line(line: CTE, checkpoint: type[Checkpoint] = Checkpoint) -> ColumnElement[bool]:
    """The condition that a checkpoint stands on a row of `line`; the same rule as `Line.holds`."""
    return and_(
        checkpoint.attempt_id == line.c.attempt_id,
        or_(
            and_(line.c.bound.is_(None), or_(checkpoint.sequence.is_not(None), checkpoint.state.in_(UNFINISHED))),
            checkpoint.sequence <= line.c.bound,
        ),
    )


def ids_on_line(run_id: str, head: str) -> Select[str]:
    """The query of the ids of all that stands on the line of a run.

    It depends on nothing around it, so that it is run once: asked of each checkpoint anew, a line of 500 attempts took
    minutes.
    """
    standing = aliased(Checkpoint)
    line = line_query([head])
    return select(standing.id).join(line, on_line(line, standing)).where(standing.run_id == run_id)


def load_lines(session: Session, heads: Sequence[str]) -> dict[str, Line]:
    """The line of each head."""
    bounds: dict[str, dict[str, int | None]] = defaultdict(dict)
    for head, attempt_id, bound in session.execute(_lines(), {"heads": heads}):
        bounds[head][attempt_id] = bound
    return {head: Line(found) for head, found in bounds.items()}


def heads_of(session: Session, run_ids: Sequence[str]) -> dict[str, str]:
    """The head of each run's line: its last attempt that decided.

    That is the current attempt, or, until that one decides, the one it would continue: a fenced attempt can no longer
    decide.
    """
    return dict(session.execute(_heads(), {"runs": run_ids}).all())


def on_their_lines(session: Session, checkpoints: Sequence[Checkpoint]) -> set[str]:
    """The ids of those that stand on the line of their run: two queries, and no more rows than checkpoints.

    A run that was restarted a thousand times has a line of a thousand attempts, which stay in the database.
    """
    heads = heads_of(session, sorted({checkpoint.run_id for checkpoint in checkpoints}))
    if not heads:
        return set()
    ids = [checkpoint.id for checkpoint in checkpoints]
    return set(session.scalars(_standing(), {"heads": list(heads.values()), "checkpoints": ids}))


def last_on_lines(session: Session, heads: Sequence[str]) -> dict[str, Checkpoint]:
    """What each head would resume from: the highest sequence among the committed that are not quarantined."""
    return dict(session.execute(_last(), {"heads": heads}).all())


# Building these statements takes ten times as long as running them, and every rank of a commit asks for its line.


@cache
def _lines() -> Select[str, str, int | None]:
    line = line_query(bindparam("heads", expanding=True))
    return select(line.c.head, line.c.attempt_id, line.c.bound)


@cache
def _standing() -> Select[str]:
    line = line_query(bindparam("heads", expanding=True))
    wanted = Checkpoint.id.in_(bindparam("checkpoints", expanding=True))
    return select(Checkpoint.id).join(line, on_line(line)).where(wanted)


@cache
def _heads() -> Select[str, str]:
    last = (
        select(Attempt.run_id, func.max(Attempt.number).label("number"))
        .where(Attempt.run_id.in_(bindparam("runs", expanding=True)), Attempt.decision.is_not(None))
        .group_by(Attempt.run_id)
        .subquery()
    )
    return select(Attempt.run_id, Attempt.id).join(
        last, and_(Attempt.run_id == last.c.run_id, Attempt.number == last.c.number)
    )


@cache
def _last() -> Select[str, Checkpoint]:
    line = line_query(bindparam("heads", expanding=True))
    best = (
        select(line.c.head, func.max(Checkpoint.sequence).label("sequence"))
        .join(Checkpoint, on_line(line))
        .where(Checkpoint.state == CheckpointState.COMMITTED.value, Checkpoint.quarantined.is_(False))
        .group_by(line.c.head)
        .subquery()
    )
    return (
        select(best.c.head, Checkpoint)
        .join(Attempt, Attempt.id == best.c.head)
        .join(Checkpoint, and_(Checkpoint.run_id == Attempt.run_id, Checkpoint.sequence == best.c.sequence))
    )
