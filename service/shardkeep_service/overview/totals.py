"""SQL of the overview: sums that the database keeps or takes from an index, of what a token may see."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, literal, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.access.models import ProjectUsage
from shardkeep_service.checkpoints.models import Checkpoint, OutboxEntry
from shardkeep_service.chunks.models import Chunk, ChunkState, Verification
from shardkeep_service.integrity.models import Finding
from shardkeep_service.overview.stretches import Stretches
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.runs.models import Run

_COUNTED = (*UNFINISHED, CheckpointState.ABORTED.value, CheckpointState.DELETED.value)


@dataclass(frozen=True, slots=True)
class Reach:
    """The projects that are summed up; None is all."""

    project_ids: frozenset[str] | None

    def holds(self, column: InstrumentedAttribute[str]) -> ColumnElement[bool]:
        """The condition that a row belongs to one of them."""
        return true() if self.project_ids is None else column.in_(sorted(self.project_ids))


@dataclass(frozen=True, slots=True)
class RunSums:
    """Of all runs together. `runs` are those that are not deleted."""

    runs: int
    committed: int
    raw_bytes: int
    named_bytes: int


@dataclass(frozen=True, slots=True)
class Saved:
    """The committed checkpoints of one stretch."""

    committed: int = 0
    new_bytes: int = 0
    raw_bytes: int = 0


def count_projects(session: Session, reach: Reach) -> int:
    """Projects that are not deleted."""
    query = select(func.count()).select_from(Project).where(Project.deleted_at.is_(None), reach.holds(Project.id))
    return session.scalars(query).one()


def sum_up_runs(session: Session, reach: Reach) -> RunSums:
    """What the rows of the runs say; the checkpoints are not read."""
    query = select(
        func.count().filter(Run.deleted_at.is_(None)),
        func.sum(Run.committed_checkpoints),
        func.sum(Run.raw_bytes),
        func.sum(Run.named_bytes),
    ).where(reach.holds(Run.project_id))
    runs, committed, raw_bytes, named_bytes = session.execute(query).one()
    return RunSums(runs, int(committed or 0), int(raw_bytes or 0), int(named_bytes or 0))


def count_states(session: Session, reach: Reach) -> dict[str, int]:
    """Checkpoints by state, but for the committed, which the runs know."""
    query = (
        select(Checkpoint.state, func.count())
        .where(Checkpoint.state.in_(_COUNTED), reach.holds(Checkpoint.project_id))
        .group_by(Checkpoint.state)
    )
    return dict(session.execute(query).all())


def count_quarantined(session: Session, reach: Reach) -> int:
    """Committed checkpoints that cannot be loaded."""
    query = select(func.count()).select_from(Checkpoint)
    committed = Checkpoint.state == CheckpointState.COMMITTED.value
    return session.scalars(query.where(Checkpoint.quarantined, committed, reach.holds(Checkpoint.project_id))).one()


def sum_stored_bytes(session: Session, reach: Reach) -> int:
    """What the chunks take in the store, by the counters of `access/usage.py`."""
    query = select(func.coalesce(func.sum(ProjectUsage.stored_bytes), 0)).where(reach.holds(ProjectUsage.project_id))
    return int(session.scalars(query).one())


def sum_declared_bytes(session: Session, reach: Reach) -> int:
    """Stored bytes whose digest nobody has compared yet."""
    # Written into the statement: by a parameter no database knows that its partial index will do.
    declared = Chunk.verification == literal(Verification.DECLARED.value, literal_execute=True)
    stored = Chunk.state == ChunkState.STORED.value
    query = select(func.coalesce(func.sum(Chunk.size_bytes), 0)).where(declared, stored, reach.holds(Chunk.project_id))
    return int(session.scalars(query).one())


def count_findings(session: Session, reach: Reach) -> int:
    """Damaged or lost objects that are neither healed nor purged."""
    query = select(func.count()).select_from(Finding)
    return session.scalars(query.where(Finding.resolved_at.is_(None), reach.holds(Finding.project_id))).one()


def count_outbox(session: Session) -> int:
    """Records that are still to be written to the store."""
    return session.scalars(select(func.count()).select_from(OutboxEntry).where(OutboxEntry.done_at.is_(None))).one()


def committed_by_stretch(session: Session, reach: Reach, stretches: Stretches) -> dict[int, Saved]:
    """What was committed in each stretch that has any, also what was deleted since."""
    index = _index_of(Checkpoint.committed_at, stretches)
    sums = (func.coalesce(func.sum(column), 0) for column in (Checkpoint.new_bytes, Checkpoint.raw_bytes))
    query = (
        select(index, func.count(), *sums)
        .where(Checkpoint.committed_at >= stretches.start, reach.holds(Checkpoint.project_id))
        .group_by(index)
    )
    return {
        stretch: Saved(committed, int(new_bytes), int(raw_bytes))
        for stretch, committed, new_bytes, raw_bytes in session.execute(query)
    }


def aborted_by_stretch(session: Session, reach: Reach, stretches: Stretches) -> dict[int, int]:
    """How many that were opened in each stretch were aborted."""
    index = _index_of(Checkpoint.opened_at, stretches)
    aborted = Checkpoint.state == CheckpointState.ABORTED.value
    query = (
        select(index, func.count())
        .where(aborted, Checkpoint.opened_at >= stretches.start, reach.holds(Checkpoint.project_id))
        .group_by(index)
    )
    return dict(session.execute(query).all())


def _index_of(column: InstrumentedAttribute[Any], stretches: Stretches) -> ColumnElement[Any]:
    return ((column - stretches.start) // stretches.micros).label("stretch")


def reach_of(project_ids: Collection[str] | None) -> Reach:
    """Of these projects, or of all."""
    return Reach(None if project_ids is None else frozenset(project_ids))
