"""Making, finding and listing runs, and what is last in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.identifiers import new_id
from shardkeep.protocol.messages import CheckpointSummary, LatestAnswer, Page, RunInfo
from shardkeep_service.access.audit import record
from shardkeep_service.access.principal import UNSEEN, Principal
from shardkeep_service.catalogue.outbox import record_run
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.checkpoints.repository import load_places, places
from shardkeep_service.checkpoints.views import checkpoint_info, summaries
from shardkeep_service.cursors import bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.errors import Refusal
from shardkeep_service.inserts import insert_if_absent
from shardkeep_service.moments import moment
from shardkeep_service.projects.models import Project
from shardkeep_service.projects.service import check_name, ensure_project, find_project
from shardkeep_service.runs import repository
from shardkeep_service.runs.lines import EMPTY_LINE, heads_of, last_on_lines, load_lines
from shardkeep_service.runs.models import Run
from shardkeep_service.runs.passed_over import passed_over
from shardkeep_service.runs.states import state_of
from shardkeep_service.service_context import ServiceContext

_LIST: Final = "runs"


def ensure_run(context: ServiceContext, principal: Principal, project: str, run: str) -> RunInfo:
    """The run, made if absent; an admin token makes the project too. Idempotent."""
    check_name(project, kind="project")
    check_name(run, kind="run")
    with context.database.read() as session:
        info = _existing(session, principal, project, run)
    if info is not None:
        return info
    with context.database.write() as session:
        now = context.database.now(session)
        if principal.is_admin:
            owner, _ = ensure_project(session, principal, project, now=now)
        else:
            owner = find_project(session, principal, project)
        values = {"id": new_id("run"), "project_id": owner.id, "name": run, "created_at": now}
        created = insert_if_absent(session, Run, {**values, "attempts": 0, "opened": 0, "sequence": 0})
        found = repository.run_named(session, owner.id, run)
        assert found is not None  # just inserted, by us or by another
        principal.check_run(owner.id, found.id)
        if created:
            record_run(session, found.id)
            record(session, principal, "run.create", target=found.id, project_id=owner.id, detail={"name": run})
        return run_infos(session, owner, [found])[0].model_copy(update={"created": created})


def get_run(context: ServiceContext, principal: Principal, project: str, run: str) -> RunInfo:
    """One run with its counts and its last consistent checkpoint."""
    with context.database.read() as session:
        owner, found = find_run(session, principal, project, run)
        return run_infos(session, owner, [found])[0]


def list_runs(
    context: ServiceContext, principal: Principal, project: str, *, deleted: bool, limit: int, cursor: str | None
) -> Page[RunInfo]:
    """The runs of a project by name, or those deleted and not restored."""
    size = bounded_limit(limit)
    filters = {"project": project, "deleted": deleted}
    position = decode_cursor(cursor, _LIST, filters, (str,))
    with context.database.read() as session:
        owner = find_project(session, principal, project)
        rows = repository.runs_after(
            session,
            owner.id,
            position[0] if position else None,
            only_id=principal.run_id,
            deleted=deleted,
            limit=size + 1,
        )
        items = run_infos(session, owner, rows[:size])
    following = encode_cursor(_LIST, filters, (rows[size - 1].name,)) if len(rows) > size else None
    return Page[RunInfo](items=items, next_cursor=following)


def latest(context: ServiceContext, principal: Principal, project: str, run: str) -> LatestAnswer:
    """The last consistent checkpoint on the run's line, with what was passed over. Reading it begins nothing."""
    with context.database.read() as session:
        _, found = find_run(session, principal, project, run)
        head = heads_of(session, [found.id]).get(found.id)
        line = load_lines(session, [head])[head] if head else EMPTY_LINE
        last = last_on_lines(session, [head]).get(head) if head else None
        return LatestAnswer(
            checkpoint=None if last is None else checkpoint_info(session, last.id),
            passed_over=passed_over(session, found.id, line, last),
        )


def find_run(session: Session, principal: Principal, project: str, run: str) -> tuple[Project, Run]:
    """The run and its project; Refusal `unknown_project` or `unknown_run`."""
    owner = find_project(session, principal, project)
    found = repository.run_named(session, owner.id, run)
    if found is None:
        raise Refusal(ErrorCode.UNKNOWN_RUN, UNSEEN[ErrorCode.UNKNOWN_RUN])
    principal.check_run(owner.id, found.id)
    return owner, found


def run_infos(session: Session, project: Project, runs: Sequence[Run]) -> list[RunInfo]:
    """Several runs of a project, in a number of queries that does not depend on theirs."""
    run_ids = [run.id for run in runs]
    counts = repository.counts_of(session, run_ids)
    last = _last_of_runs(session, run_ids)
    return [
        RunInfo(
            id=run.id,
            project=project.shown_name,
            name=run.shown_name,
            created_at=moment(run.created_at),
            state=state_of(run, is_saving=counts[run.id].unfinished > 0, has_committed=counts[run.id].committed > 0),
            current_attempt_id=run.current_attempt_id,
            attempts=run.attempts,
            checkpoints=counts[run.id].checkpoints,
            committed_checkpoints=counts[run.id].committed,
            latest=None if run.deleted_at is not None else last.get(run.id),
            deleted_at=moment(run.deleted_at),
            version=run.version,
        )
        for run in runs
    ]


def _last_of_runs(session: Session, run_ids: Sequence[str]) -> dict[str, CheckpointSummary]:
    heads = heads_of(session, run_ids)
    if not heads:
        return {}
    last = last_on_lines(session, list(heads.values()))
    found = load_places(session, places().where(Checkpoint.id.in_([checkpoint.id for checkpoint in last.values()])))
    shown = summaries(session, found)
    return {place.checkpoint.run_id: summary for place, summary in zip(found, shown, strict=True)}


def _existing(session: Session, principal: Principal, project: str, run: str) -> RunInfo | None:
    try:
        owner, found = find_run(session, principal, project, run)
    except Refusal as refusal:
        if refusal.code in (ErrorCode.UNKNOWN_PROJECT, ErrorCode.UNKNOWN_RUN):
            return None
        raise
    return run_infos(session, owner, [found])[0]
