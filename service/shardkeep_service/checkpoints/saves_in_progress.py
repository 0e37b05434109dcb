"""Saves in progress: what is open or being validated, with what the ranks did so far.

The number of queries does not depend on the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointSummary, Page, SaveInProgress
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.listing import before, within_reach
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow, RankSession
from shardkeep_service.checkpoints.repository import load_places, places
from shardkeep_service.checkpoints.views import summaries
from shardkeep_service.cursors import bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.moments import MICROS_PER_SECOND, micros, moment
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.service_context import ServiceContext

_LIST: Final = "saves"


@dataclass(frozen=True, slots=True)
class _Part:
    """What the ranks of one checkpoint did, all together. `oldest_lease` is of those that have not arrived."""

    opened: int = 0
    offered_bytes: int = 0
    present_bytes: int = 0
    oldest_lease: int | None = None


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What a parent holds, and what it names in the store."""

    raw_bytes: int | None = None
    named_bytes: int | None = None


def list_saves(
    context: ServiceContext, principal: Principal, project: str | None, *, limit: int, cursor: str | None
) -> Page[SaveInProgress]:
    """The saves in progress that the token may see, newest first."""
    size = bounded_limit(limit)
    filters = {"project": project}
    position = decode_cursor(cursor, _LIST, filters, (int, str))
    with context.database.read() as session:
        query = within_reach(session, places().where(Checkpoint.state.in_(UNFINISHED)), principal, project)
        query = query.order_by(Checkpoint.opened_at.desc(), Checkpoint.id.desc()).limit(size + 1)
        if position is not None:
            query = query.where(before(*position))
        found = load_places(session, query)
        page = found[:size]
        checkpoints = [place.checkpoint for place in page]
        items = _saves(
            session,
            checkpoints,
            summaries(session, page),
            now=context.database.now(session),
            lease=micros(context.settings.lease_seconds),
        )
    following = None
    if len(found) > size:
        following = encode_cursor(_LIST, filters, (checkpoints[-1].opened_at, checkpoints[-1].id))
    return Page[SaveInProgress](items=items, next_cursor=following)


def _saves(
    session: Session, checkpoints: Sequence[Checkpoint], shown: Sequence[CheckpointSummary], *, now: int, lease: int
) -> list[SaveInProgress]:
    parts = _parts_of(session, [checkpoint.id for checkpoint in checkpoints])
    parents = _sizes_of(session, [checkpoint.parent_id for checkpoint in checkpoints if checkpoint.parent_id])
    items = []
    for checkpoint, summary in zip(checkpoints, shown, strict=True):
        part = parts.get(checkpoint.id, _Part())
        parent = parents.get(checkpoint.parent_id or "", _Sizes())
        idle = 0 if part.oldest_lease is None else max(0, now - (part.oldest_lease - lease))
        items.append(
            SaveInProgress(
                checkpoint=summary,
                opened_ranks=part.opened,
                arrived_ranks=checkpoint.arrived,
                offered_bytes=part.offered_bytes,
                present_bytes=part.present_bytes,
                raw_bytes_before=parent.raw_bytes,
                named_bytes_before=parent.named_bytes,
                idle_seconds=idle / MICROS_PER_SECOND,
                now=moment(now),
            )
        )
    return items


def _parts_of(session: Session, checkpoint_ids: Sequence[str]) -> dict[str, _Part]:
    arrived = and_(ManifestRow.checkpoint_id == RankSession.checkpoint_id, ManifestRow.rank == RankSession.rank)
    query = (
        select(
            RankSession.checkpoint_id,
            func.count(),
            func.sum(RankSession.offered_bytes),
            func.sum(RankSession.present_bytes),
            func.min(RankSession.lease_until).filter(ManifestRow.rank.is_(None)),
        )
        .outerjoin(ManifestRow, arrived)
        .where(RankSession.checkpoint_id.in_(checkpoint_ids))
        .group_by(RankSession.checkpoint_id)
    )
    return {
        checkpoint_id: _Part(opened, int(offered), int(present), oldest)
        for checkpoint_id, opened, offered, present, oldest in session.execute(query)
    }


def _sizes_of(session: Session, checkpoint_ids: Sequence[str]) -> dict[str, _Sizes]:
    query = select(Checkpoint.id, Checkpoint.raw_bytes, Checkpoint.stored_bytes)
    rows = session.execute(query.where(Checkpoint.id.in_(checkpoint_ids)))
    return {checkpoint_id: _Sizes(raw_bytes, named_bytes) for checkpoint_id, raw_bytes, named_bytes in rows}
