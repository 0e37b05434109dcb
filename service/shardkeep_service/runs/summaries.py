"""The list of all runs: searched, narrowed and in any of some orders, a page at a time.

Each order has an index of its own (`runs/models.py`), so a page reads about a page of rows however many runs there are;
a search reads the runs until the page is full. Runs that have nothing to sort by come last, by id, whichever the
direction: they are a second part of the list, with a query of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from sqlalchemy import ColumnElement, Select, and_, false, func, or_, select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import Page, RunState, RunSummary
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.cursors import bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.moments import moment
from shardkeep_service.projects.models import Project
from shardkeep_service.projects.service import find_project
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.runs.models import Run
from shardkeep_service.runs.states import state_of
from shardkeep_service.service_context import ServiceContext

_LIST: Final = "all runs"

RunSort: TypeAlias = Literal["name", "created", "last_step", "last_committed", "stored_bytes"]
RunOrder: TypeAlias = Literal["asc", "desc"]
_Query: TypeAlias = "Select[Run]"
_Position: TypeAlias = "tuple[int, int | str, str]"
"""Whether it is in the part without a value (1), else (0) the value, and the id."""

_NOTHING: Final = 1
_COLUMNS: Final[Mapping[RunSort, str]] = {
    "name": "name",
    "created": "created_at",
    "last_step": "last_committed_step",
    "last_committed": "last_committed_at",
    "stored_bytes": "stored_bytes",
}


@dataclass(frozen=True, slots=True)
class RunFilter:
    """What the list is narrowed to. Without a state it is all runs that are not deleted; an empty search finds all."""

    project: str | None = None
    search: str = ""
    state: RunState | None = None
    sort: RunSort = "last_committed"
    order: RunOrder = "desc"

    @property
    def column(self) -> str:
        """What it is sorted by; the name of a deleted run is the one it had."""
        return "deleted_name" if (self.sort, self.state) == ("name", "deleted") else _COLUMNS[self.sort]

    @property
    def may_have_value(self) -> bool:
        """Whether any of the runs may have a value to sort by: a new one has committed nothing."""
        return not (self.state == "new" and self.sort in ("last_step", "last_committed"))

    @property
    def position_types(self) -> tuple[type, ...]:
        """Those of a cursor's position."""
        return (int, str if self.sort == "name" else int, str)

    def position_of(self, run: Run) -> _Position:
        """Where a run stands in the list."""
        value = getattr(run, self.column)
        if value is None:
            return (_NOTHING, "" if self.sort == "name" else 0, run.id)
        return (0, value, run.id)


def list_all_runs(
    context: ServiceContext, principal: Principal, wanted: RunFilter, *, limit: int, cursor: str | None
) -> Page[RunSummary]:
    """The runs that the token may see."""
    size = bounded_limit(limit)
    filters = asdict(wanted)
    position = decode_cursor(cursor, _LIST, filters, wanted.position_types)
    with context.database.read() as session:
        query = _narrowed(session, principal, wanted)
        rows = _rows_after(session, query, wanted, position, limit=size + 1)
        items = _summaries(session, rows[:size])
    following = encode_cursor(_LIST, filters, wanted.position_of(rows[size - 1])) if len(rows) > size else None
    return Page[RunSummary](items=items, next_cursor=following)


def _rows_after(
    session: Session, query: _Query, wanted: RunFilter, position: tuple[Any, ...] | None, *, limit: int
) -> list[Run]:
    """The runs with a value to sort by, if there can be any, then those without."""
    rows: list[Run] = []
    key, is_ascending = getattr(Run, wanted.column), wanted.order == "asc"
    if wanted.may_have_value and (position is None or position[0] != _NOTHING):
        valued = query.where(key.is_not(None))
        if position is not None:
            valued = valued.where(_is_after(key, position[1], position[2], is_ascending=is_ascending))
        directed = (key.asc(), Run.id.asc()) if is_ascending else (key.desc(), Run.id.desc())
        rows.extend(session.scalars(valued.order_by(*directed).limit(limit)))
    if len(rows) < limit:
        rest = query.where(key.is_(None))
        if position is not None and position[0] == _NOTHING:
            rest = rest.where(Run.id > position[2])
        rows.extend(session.scalars(rest.order_by(Run.id).limit(limit - len(rows))))
    return rows


def _is_after(key: ColumnElement[Any], value: int | str, run_id: str, *, is_ascending: bool) -> ColumnElement[bool]:
    """The bound on the key alone lets an index begin there."""
    if is_ascending:
        return and_(key >= value, or_(key > value, Run.id > run_id))
    return and_(key <= value, or_(key < value, Run.id < run_id))


def _narrowed(session: Session, principal: Principal, wanted: RunFilter) -> _Query:
    query = select(Run).where(_state_is(wanted.state))
    if wanted.project is not None:
        query = query.where(Run.project_id == find_project(session, principal, wanted.project).id)
    elif principal.project_ids is not None:
        query = query.where(Run.project_id.in_(sorted(principal.project_ids)))
    if principal.run_id is not None:
        query = query.where(Run.id == principal.run_id)
    if wanted.search:
        query = query.where(_is_found(wanted.search))
    return query


def _state_is(state: RunState | None) -> ColumnElement[bool]:
    if state == "deleted":
        return Run.deleted_at.is_not(None)
    there = Run.deleted_at.is_(None)
    if state is None:
        return there
    # Few checkpoints are open at a time, so this list is short.
    saving = select(Checkpoint.run_id).where(Checkpoint.state.in_(UNFINISHED))
    if state == "saving":
        return and_(there, Run.id.in_(saving))
    has_committed = Run.committed_checkpoints > 0
    return and_(there, has_committed if state == "idle" else ~has_committed, Run.id.not_in(saving))


def _is_found(search: str) -> ColumnElement[bool]:
    """Whether `project/run` contains the text, in whatever case. Names are ASCII."""
    wanted = search.lower()
    project = func.lower(func.coalesce(Project.deleted_name, Project.name))
    run = func.lower(func.coalesce(Run.deleted_name, Run.name))
    before, slash, after = wanted.partition("/")
    if not slash:
        of_project = select(Project.id).where(project.contains(wanted, autoescape=True))
        return or_(run.contains(wanted, autoescape=True), Run.project_id.in_(of_project))
    if "/" in after:
        return false()
    of_project = select(Project.id).where(project.endswith(before, autoescape=True))
    return and_(Run.project_id.in_(of_project), run.startswith(after, autoescape=True))


def _summaries(session: Session, runs: Sequence[Run]) -> list[RunSummary]:
    """Two queries, whatever the number of runs."""
    project_ids = {run.project_id for run in runs}
    projects = {row.id: row for row in session.scalars(select(Project).where(Project.id.in_(project_ids)))}
    saving = set(
        session.scalars(
            select(Checkpoint.run_id)
            .where(Checkpoint.run_id.in_([run.id for run in runs]), Checkpoint.state.in_(UNFINISHED))
            .distinct()
        )
    )
    return [_summary(run, projects[run.project_id].shown_name, is_saving=run.id in saving) for run in runs]


def _summary(run: Run, project: str, *, is_saving: bool) -> RunSummary:
    return RunSummary(
        id=run.id,
        project=project,
        name=run.shown_name,
        created_at=moment(run.created_at),
        state=state_of(run, is_saving=is_saving, has_committed=run.committed_checkpoints > 0),
        attempts=run.attempts,
        committed_checkpoints=run.committed_checkpoints,
        stored_bytes=run.stored_bytes,
        last_step=run.last_committed_step,
        last_committed_at=moment(run.last_committed_at),
        last_checkpoint_id=run.last_checkpoint_id,
        deleted_at=moment(run.deleted_at),
        version=run.version,
    )
