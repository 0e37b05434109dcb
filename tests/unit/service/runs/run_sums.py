"""What the rows of runs say of their committed checkpoints, and what a count of the checkpoints says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.runs.models import Run

Sums: TypeAlias = dict[str, tuple[Any, ...]]
"""By run: committed checkpoints, stored, raw and named bytes; id, step and moment of the last one."""


def kept_sums(session: Session) -> Sums:
    """As the database keeps them."""
    query = select(
        Run.id,
        Run.committed_checkpoints,
        Run.stored_bytes,
        Run.raw_bytes,
        Run.named_bytes,
        Run.last_checkpoint_id,
        Run.last_committed_step,
        Run.last_committed_at,
    )
    return {row[0]: tuple(row[1:]) for row in session.execute(query)}


def counted_sums(session: Session) -> Sums:
    """As they should be, counted here, not by the database."""
    committed = Checkpoint.state == CheckpointState.COMMITTED.value
    columns = (Checkpoint.id, Checkpoint.run_id, Checkpoint.sequence, Checkpoint.step, Checkpoint.committed_at)
    sizes = (Checkpoint.new_bytes, Checkpoint.raw_bytes, Checkpoint.stored_bytes)
    by_run: dict[str, list[Any]] = {run_id: [] for run_id in session.scalars(select(Run.id))}
    for row in session.execute(select(*columns, *sizes).where(committed)):
        by_run[row.run_id].append(row)
    return {run_id: _sums(rows) for run_id, rows in by_run.items()}


def _sums(rows: Sequence[Any]) -> tuple[Any, ...]:
    sizes = (sum(getattr(row, name) or 0 for row in rows) for name in ("new_bytes", "raw_bytes", "stored_bytes"))
    last = max(rows, key=lambda row: row.sequence, default=None)
    return (len(rows), *sizes, *((None, None, None) if last is None else (last.id, last.step, last.committed_at)))
