"""The ranks of one checkpoint: who opened, who sent its manifest, and who has been silent for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState, Page, RankPart
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
    context: ServiceContext, principal: Principal, checkpoint_id: str, *, limit: int, cursor: str | None
) -> Page[RankPart]:
    """One part for each rank of the world, by rank; also of a checkpoint that is finished or gone.

    Sessions are forgotten when a checkpoint ends: then only what its manifests tell is left.
    """
    size = bounded_limit(limit)
    filters = {"checkpoint": checkpoint_id}
    position = decode_cursor(cursor, _LIST, filters, (int,))
    with context.database.read() as session:
        checkpoint = find_checkpoint(session, principal, checkpoint_id)
        start = position[0] if position else 0
        ranks = range(max(start, 0), min(start + size, checkpoint.world_size))
        sessions, arrived = _sessions(session, checkpoint_id, ranks), _arrived(session, checkpoint_id, ranks)
        view = _View(checkpoint, now=context.database.now(session), lease=micros(context.settings.lease_seconds))
    items = [view.part(rank, sessions.get(rank), arrived.get(rank)) for rank in ranks]
    is_last = not ranks or ranks.stop >= checkpoint.world_size
    return Page[RankPart](items=items, next_cursor=None if is_last else encode_cursor(_LIST, filters, (ranks.stop,)))


def _sessions(session: Session, checkpoint_id: str, ranks: range) -> dict[int, RankSession]:
    query = select(RankSession).where(
        RankSession.checkpoint_id == checkpoint_id, RankSession.rank >= ranks.start, RankSession.rank < ranks.stop
    )
    return {row.rank: row for row in session.scalars(query)}


def _arrived(session: Session, checkpoint_id: str, ranks: range) -> dict[int, _Arrived]:
    query = select(ManifestRow.rank, ManifestRow.size_bytes, ManifestRow.arrived_at).where(
        ManifestRow.checkpoint_id == checkpoint_id, ManifestRow.rank >= ranks.start, ManifestRow.rank < ranks.stop
    )
    return {rank: _Arrived(size_bytes, at) for rank, size_bytes, at in session.execute(query)}


class _View:
    """How the parts of one checkpoint look at one moment."""

    def __init__(self, checkpoint: Checkpoint, *, now: int, lease: int) -> None:
        self._checkpoint = checkpoint
        self._is_unfinished = checkpoint.state in UNFINISHED
        self._all_came = checkpoint.state in WERE_COMPLETE or checkpoint.state == CheckpointState.VALIDATING.value
        self._now = now
        self._lease = lease

    def part(self, rank: int, own: RankSession | None, arrived: _Arrived | None) -> RankPart:
        """One rank's part."""
        came = arrived is not None or self._all_came  # a purged one has no manifests left
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
