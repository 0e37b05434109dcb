"""Lists of checkpoints, newest first, with filters and cursors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

from sqlalchemy import ColumnElement, Select, and_, false, or_, select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState, CheckpointSummary, Page
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.models import Checkpoint, CheckpointTag
from shardkeep_service.checkpoints.repository import load_places, places
from shardkeep_service.checkpoints.views import summaries
from shardkeep_service.cursors import bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.projects.service import find_project
from shardkeep_service.runs.lines import heads_of, ids_on_line
from shardkeep_service.runs.service import find_run
from shardkeep_service.service_context import ServiceContext

_OF_RUN: Final = "checkpoints of a run"
_OF_ALL: Final = "checkpoints"
_Query: TypeAlias = "Select[Checkpoint, int, str, str]"


@dataclass(frozen=True, slots=True)
class CheckpointFilter:
    """What a list is narrowed to; None narrows nothing."""

    state: CheckpointState | None = None
    step: int | None = None
    step_min: int | None = None
    step_max: int | None = None
    pinned: bool | None = None
    attempt: str | None = None
    tag: str | None = None

    def narrow(self, query: _Query) -> _Query:
        """The query with these conditions."""
        if self.state is not None:
            query = query.where(Checkpoint.state == self.state.value)
        if self.step is not None:
            query = query.where(Checkpoint.step == self.step)
        if self.step_min is not None:
            query = query.where(Checkpoint.step >= self.step_min)
        if self.step_max is not None:
            query = query.where(Checkpoint.step <= self.step_max)
        if self.pinned is not None:
            query = query.where(Checkpoint.pinned if self.pinned else ~Checkpoint.pinned)  # as its index says it
        if self.attempt is not None:
            query = query.where(Checkpoint.attempt_id == self.attempt)
        if self.tag is not None:
            tagged = select(CheckpointTag.checkpoint_id).where(CheckpointTag.tag == self.tag)
            query = query.where(Checkpoint.id.in_(tagged))
        return query


def list_run_checkpoints(
    context: ServiceContext,
    principal: Principal,
    project: str,
    run: str,
    wanted: CheckpointFilter,
    *,
    on_the_line: bool | None,
    limit: int,
    cursor: str | None,
) -> Page[CheckpointSummary]:
    """The checkpoints of a run in the order they were opened, newest first."""
    size = bounded_limit(limit)
    filters = {"project": project, "run": run, "on_line": on_the_line, **asdict(wanted)}
    position = decode_cursor(cursor, _OF_RUN, filters, (int,))
    with context.database.read() as session:
        _, found = find_run(session, principal, project, run)
        query = wanted.narrow(places().where(Checkpoint.run_id == found.id))
        query = query.order_by(Checkpoint.number.desc()).limit(size + 1)
        if position is not None:
            query = query.where(Checkpoint.number < position[0])
        if on_the_line is not None:
            query = _on_line_of(session, query, found.id, wanted=on_the_line)
        return _page(session, query, size, lambda row: encode_cursor(_OF_RUN, filters, (row.number,)))


def list_checkpoints(
    context: ServiceContext,
    principal: Principal,
    project: str | None,
    wanted: CheckpointFilter,
    *,
    limit: int,
    cursor: str | None,
) -> Page[CheckpointSummary]:
    """The checkpoints of every run the token may see, or of one project, newest first."""
    size = bounded_limit(limit)
    filters = {"project": project, **asdict(wanted)}
    position = decode_cursor(cursor, _OF_ALL, filters, (int, str))
    with context.database.read() as session:
        query = within_reach(session, wanted.narrow(places()), principal, project)
        query = query.order_by(Checkpoint.opened_at.desc(), Checkpoint.id.desc()).limit(size + 1)
        if position is not None:
            query = query.where(before(*position))
        return _page(session, query, size, lambda row: encode_cursor(_OF_ALL, filters, (row.opened_at, row.id)))


def within_reach(session: Session, query: _Query, principal: Principal, project: str | None) -> _Query:
    """The query for what the token may see, of one project where it is named; refuses `unknown_project`."""
    if project is not None:
        query = query.where(Checkpoint.project_id == find_project(session, principal, project).id)
    elif principal.project_ids is not None:
        query = query.where(Checkpoint.project_id.in_(sorted(principal.project_ids)))
    if principal.run_id is not None:
        query = query.where(Checkpoint.run_id == principal.run_id)
    return query


def before(opened_at: int, checkpoint_id: str) -> ColumnElement[bool]:
    """What comes after that checkpoint in a list of the newest first; the bound lets an index begin there."""
    earlier = or_(Checkpoint.opened_at < opened_at, Checkpoint.id < checkpoint_id)
    return and_(Checkpoint.opened_at <= opened_at, earlier)


def _page(
    session: Session, query: _Query, size: int, cursor_after: Callable[[Checkpoint], str]
) -> Page[CheckpointSummary]:
    found = load_places(session, query)
    following = cursor_after(found[size - 1].checkpoint) if len(found) > size else None
    return Page[CheckpointSummary](items=summaries(session, found[:size]), next_cursor=following)


def _on_line_of(session: Session, query: _Query, run_id: str, *, wanted: bool) -> _Query:
    head = heads_of(session, [run_id]).get(run_id)
    if head is None:
        return query.where(false()) if wanted else query
    standing = ids_on_line(run_id, head)
    return query.where(Checkpoint.id.in_(standing) if wanted else Checkpoint.id.not_in(standing))
