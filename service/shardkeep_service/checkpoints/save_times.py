"""How long each rank of a run's saves took: the columns of the heat map, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState, Page, SaveTimes
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.cursors import decode_cursor, encode_cursor
from shardkeep_service.moments import MICROS_PER_SECOND, moment
from shardkeep_service.runs.service import find_run
from shardkeep_service.service_context import ServiceContext

_LIST: Final = "save times"
_COLUMNS: Final = (
    Checkpoint.id,
    Checkpoint.attempt_id,
    Checkpoint.number,
    Checkpoint.save,
    Checkpoint.step,
    Checkpoint.state,
    Checkpoint.world_size,
    Checkpoint.opened_at,
    Checkpoint.committed_at,
)
"""What is shown: without the report, metrics and environment, which are by far the most of a row."""
COLUMNS_LIMIT: Final = 50
CELLS_LIMIT: Final = 20_000
"""Ranks of all columns of a page together; a page has one column at least, however many ranks that has."""


def list_save_times(
    context: ServiceContext, principal: Principal, project: str, run: str, *, limit: int, cursor: str | None
) -> Page[SaveTimes]:
    """The saves of a run, newest first, without those whose manifests were removed: nobody knows their times."""
    size = min(limit, COLUMNS_LIMIT)
    filters = {"project": project, "run": run}
    position = decode_cursor(cursor, _LIST, filters, (int,))
    with context.database.read() as session:
        _, found = find_run(session, principal, project, run)
        kept = (Checkpoint.state != CheckpointState.PURGED.value, Checkpoint.purged_at.is_(None))
        query = select(*_COLUMNS).where(Checkpoint.run_id == found.id, *kept)
        if position is not None:
            query = query.where(Checkpoint.number < position[0])
        rows = session.execute(query.order_by(Checkpoint.number.desc()).limit(size + 1)).all()
        page = rows[: fitting_columns([row.world_size for row in rows[:size]])]
        items = _columns(session, page)
    following = encode_cursor(_LIST, filters, (page[-1].number,)) if len(rows) > len(page) else None
    return Page[SaveTimes](items=items, next_cursor=following)


def fitting_columns(world_sizes: Sequence[int]) -> int:
    """How many columns of so many ranks make a page."""
    cells = 0
    for count, world_size in enumerate(world_sizes):
        cells += world_size
        if count and cells > CELLS_LIMIT:
            return count
    return len(world_sizes)


def _columns(session: Session, checkpoints: Sequence[Row[*tuple[Any, ...]]]) -> list[SaveTimes]:
    seconds: dict[str, list[float | None]] = {row.id: [None] * row.world_size for row in checkpoints}
    opened_at = {row.id: row.opened_at for row in checkpoints}
    query = select(ManifestRow.checkpoint_id, ManifestRow.rank, ManifestRow.arrived_at)
    for checkpoint_id, rank, arrived_at in session.execute(query.where(ManifestRow.checkpoint_id.in_(opened_at))):
        seconds[checkpoint_id][rank] = max(0, arrived_at - opened_at[checkpoint_id]) / MICROS_PER_SECOND
    return [
        SaveTimes(
            checkpoint_id=row.id,
            attempt_id=row.attempt_id,
            number=row.number,
            save=row.save,
            step=row.step,
            state=CheckpointState(row.state),
            world_size=row.world_size,
            opened_at=moment(row.opened_at),
            ended_at=moment(row.committed_at),
            seconds=seconds[row.id],
        )
        for row in checkpoints
    ]
