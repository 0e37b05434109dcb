"""The ranks of one checkpoint: who opened, who sent its manifest, and who has been silent for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, and_, exists, literal, or_, select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState, Page, RankPart, RankState
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow, RankSession
from shardkeep_service.checkpoints.repository import find_checkpoint
from shardkeep_service.checkpoints.views import WERE_COMPLETE
from shardkeep_service.cursors import bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.moments import MICROS_PER_SECOND, micros, moment
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.service_context import ServiceContext

_LIST: Final = "ranks"


@dataclass(frozen=True, slots=True)
class _Arrived:
    size_bytes: int
    at: int


def list_ranks(
    context: ServiceContext,
    principal: Principal,
    checkpoint_id: str,
    *,
    state: RankState | None,
    limit: int,
    cursor: str | None,
) -> Page[RankPart]:
    """One part for each rank of the world, by rank; also of a checkpoint that is finished or gone.

    Sessions are forgotten when a checkpoint ends: then only what its manifests tell is left.
    """
    size = bounded_limit(limit)
    filters = {"checkpoint": checkpoint_id, "state": state}
    position = decode_cursor(cursor, _LIST, filters, (int,))
    with context.database.read() as session:
        checkpoint = find_checkpoint(session, principal, checkpoint_id)
        ranks = _ranks(session, checkpoint, state, first=max(position[0], 0) if position else 0, limit=size + 1)
        page = ranks[:size]
        sessions, arrived = _sessions(session, checkpoint_id, page), _arrived(session, checkpoint_id, page)
        view = _View(checkpoint, now=context.database.now(session), lease=micros(context.settings.lease_seconds))
    items = [view.part(rank, sessions.get(rank), arrived.get(rank)) for rank in page]
    following = encode_cursor(_LIST, filters, (ranks[size],)) if len(ranks) > size else None
    return Page[RankPart](items=items, next_cursor=following)


def _ranks(
    session: Session, checkpoint: Checkpoint, state: RankState | None, *, first: int, limit: int
) -> Sequence[int]:
    """The ranks from `first` on whose part is in this state, ascending."""
    if state is None or _all_came(checkpoint):
        stop = checkpoint.world_size if state in (None, "arrived") else 0
        return range(first, min(first + limit, stop))
    if first >= checkpoint.world_size:
        return ()
    ranks = select(literal(first).label("rank")).cte("ranks", recursive=True)
    ranks = ranks.union_all(select(ranks.c.rank + 1).where(ranks.c.rank + 1 < checkpoint.world_size))
    query = select(ranks.c.rank).where(_is_in(state, checkpoint.id, ranks.c.rank)).order_by(ranks.c.rank)
    return session.scalars(query.limit(limit)).all()


def _is_in(state: RankState, checkpoint_id: str, rank: ColumnElement[int]) -> ColumnElement[bool]:
    opened = exists().where(RankSession.checkpoint_id == checkpoint_id, RankSession.rank == rank)
    came = exists().where(ManifestRow.checkpoint_id == checkpoint_id, ManifestRow.rank == rank)
    if state == "arrived":
        return came
    return and_(opened, ~came) if state == "sending" else ~or_(opened, came)


def _all_came(checkpoint: Checkpoint) -> bool:
    """Whether every manifest had arrived, though those of a purged one are gone."""
    return checkpoint.state in WERE_COMPLETE or checkpoint.state == CheckpointState.VALIDATING.value


def _sessions(session: Session, checkpoint_id: str, ranks: Sequence[int]) -> dict[int, RankSession]:
    query = select(RankSession).where(RankSession.checkpoint_id == checkpoint_id, RankSession.rank.in_(ranks))
    return {row.rank: row for row in session.scalars(query)}


def _arrived(session: Session, checkpoint_id: str, ranks: Sequence[int]) -> dict[int, _Arrived]:
    query = select(ManifestRow.rank, ManifestRow.size_bytes, ManifestRow.arrived_at).where(
        ManifestRow.checkpoint_id == checkpoint_id, ManifestRow.rank.in_(ranks)
    )
    return {rank: _Arrived(size_bytes, at) for rank, size_bytes, at in session.execute(query)}


class _View:
    """How the parts of one checkpoint look at one moment."""

    def __init__(self, checkpoint: Checkpoint, *, now: int, lease: int) -> None:
        self._checkpoint = checkpoint
        self._is_unfinished = checkpoint.state in UNFINISHED
        self._now = now
        self._lease = lease

    def part(self, rank: int, own: RankSession | None, arrived: _Arrived | None) -> RankPart:
        """One rank's part."""
        came = arrived is not None or _all_came(self._checkpoint)
        live = own if self._is_unfinished else None
        return RankPart(
            rank=rank,
            state="arrived" if came else "sending" if own is not None else "absent",
            opened_at=None if own is None else moment(own.opened_at),
            arrived_at=None if arrived is None else moment(arrived.at),
            seconds=None if arrived is None else (arrived.at - self._checkpoint.opened_at) / MICROS_PER_SECOND,
            offered_bytes=None if own is None else own.offered_bytes,
            present_bytes=None if own is None else own.present_bytes,
            idle_seconds=None if live is None else self._idle_seconds(live),
            lease_until=None if live is None else moment(live.lease_until),
            manifest_bytes=None if arrived is None else arrived.size_bytes,
            missing_chunks=0 if own is None else len(own.missing_chunks or ()),
        )

    def _idle_seconds(self, own: RankSession) -> float:
        """Since its last request, which moved the lease to a whole one from then on."""
        return max(0, self._now - (own.lease_until - self._lease)) / MICROS_PER_SECOND
