"""`shardkeep ls`: projects, a project's runs, or a run's checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, TypeVar

import typer

from shardkeep.cli.exit_codes import usage_error
from shardkeep.cli.human_text import age_text, metric_text, size_text
from shardkeep.cli.invocation import Invocation
from shardkeep.cli.output import Screen
from shardkeep.protocol.identifiers import is_name, split_run_name
from shardkeep.protocol.messages import CheckpointState, CheckpointSummary, ProjectInfo, RunInfo

DEFAULT_LIMIT = 20
_SHOWN_METRICS = 3
Item = TypeVar("Item")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ls")(ls)


def ls(
    context: typer.Context,
    where: Annotated[str | None, typer.Argument(metavar="[PROJECT[/RUN]]", help="Nothing: the projects.")] = None,
    *,
    state: Annotated[
        CheckpointState | None, typer.Option("--state", help="Only checkpoints in this state (default: committed).")
    ] = None,
    step: Annotated[int | None, typer.Option("--step", min=0, help="Only checkpoints of this step.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = DEFAULT_LIMIT,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Checkpoints in every state, and no limit.")] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Projects or runs that were deleted and can be restored.")
    ] = False,
) -> None:
    """List projects, the runs of a project, or the checkpoints of a run, newest first."""
    invocation: Invocation = context.obj
    if state is not None and everything:
        raise usage_error("--all lists every state; give either it or --state")
    count = None if everything else limit
    if deleted:
        _list_deleted(invocation, where, count)
        return
    if where is not None and "/" in where:
        states = None if everything else state or CheckpointState.COMMITTED
        _list_checkpoints(invocation, where, state=states, step=step, count=count)
        return
    if state is not None or step is not None:
        raise usage_error("--state and --step choose among checkpoints: give project/run")
    if where is None:
        _list_projects(invocation, count)
    else:
        _list_runs(invocation, where, count)


def _list_deleted(invocation: Invocation, where: str | None, count: int | None) -> None:
    if where is not None and not is_name(where):
        raise usage_error("--deleted lists projects, or the runs of PROJECT; `--state deleted` lists checkpoints")
    found: Iterator[ProjectInfo] | Iterator[RunInfo]
    found = invocation.keeping.deleted_projects() if where is None else invocation.keeping.deleted_runs(where)
    taken: tuple[list[ProjectInfo | RunInfo], bool] = _take(iter(found), count)
    items, more = taken
    now = datetime.now(UTC)
    rows = [(item.id, item.name, age_text(item.deleted_at, now)) for item in items]
    document = {"projects" if where is None else "runs": items, "more": more}
    invocation.output.answer(document, show=lambda screen: screen.table(("ID", "NAME", "DELETED"), rows))
    _tell_more(invocation, count, more=more)


def _list_projects(invocation: Invocation, count: int | None) -> None:
    projects, more = _take(invocation.service.projects(), count)
    document = {"projects": projects, "more": more}
    invocation.output.answer(document, show=lambda screen: _show_projects(screen, projects))
    _tell_more(invocation, count, more=more)


def _list_runs(invocation: Invocation, project: str, count: int | None) -> None:
    if not is_name(project):
        raise usage_error(f"{project!r} cannot name a project")
    runs, more = _take(invocation.service.runs(project), count)
    document = {"project": project, "runs": runs, "more": more}
    invocation.output.answer(document, show=lambda screen: _show_runs(screen, runs))
    _tell_more(invocation, count, more=more)


def _list_checkpoints(
    invocation: Invocation, where: str, *, state: CheckpointState | None, step: int | None, count: int | None
) -> None:
    project, run = split_run_name(where)
    asked = None if count is None else count + 1
    listed = invocation.service.checkpoints(project, run, state=state, step=step, limit=asked)
    checkpoints, more = _take(listed, count)
    document = {"project": project, "run": run, "checkpoints": checkpoints, "more": more}
    invocation.output.answer(document, show=lambda screen: _show_checkpoints(screen, checkpoints))
    if not checkpoints:
        kind = "" if state is None else f"{state.value} "
        of_step = "" if step is None else f" of step {step}"
        hint = "" if state is None else f"; `shardkeep ls {where} --all` lists every state"
        invocation.output.note(f"{where} has no {kind}checkpoint{of_step}{hint}")
    _tell_more(invocation, count, more=more)


def _take(items: Iterator[Item], count: int | None) -> tuple[list[Item], bool]:
    """The first `count` items, and whether there are more."""
    if count is None:
        return list(items), False
    taken = list(islice(items, count + 1))
    return taken[:count], len(taken) > count


def _tell_more(invocation: Invocation, count: int | None, *, more: bool) -> None:
    if more:
        invocation.output.note(f"there are more than {count}; --limit N or --all shows them")


def _show_projects(screen: Screen, projects: Sequence[ProjectInfo]) -> None:
    rows = [
        (project.name, str(project.runs), str(project.committed_checkpoints), size_text(project.stored_bytes))
        for project in projects
    ]
    headings = ("PROJECT", "RUNS", "CHECKPOINTS", "STORED")
    screen.table(headings, rows, right=headings[1:])


def _show_runs(screen: Screen, runs: Sequence[RunInfo]) -> None:
    now = datetime.now(UTC)
    rows = [
        (
            f"{run.project}/{run.name}",
            str(run.committed_checkpoints),
            str(run.attempts),
            "-" if run.latest is None else str(run.latest.step),
            age_text(run.latest.committed_at if run.latest else None, now),
        )
        for run in runs
    ]
    screen.table(
        ("RUN", "CHECKPOINTS", "ATTEMPTS", "LATEST STEP", "COMMITTED"),
        rows,
        right=("CHECKPOINTS", "ATTEMPTS", "LATEST STEP"),
    )


def _show_checkpoints(screen: Screen, checkpoints: Sequence[CheckpointSummary]) -> None:
    now = datetime.now(UTC)
    rows = [
        (
            item.id,
            str(item.step),
            state_text(item),
            age_text(item.committed_at or item.opened_at, now),
            size_text(item.raw_bytes),
            size_text(item.new_bytes),
            metrics_text(item.metrics),
        )
        for item in checkpoints
    ]
    screen.table(("ID", "STEP", "STATE", "WHEN", "SIZE", "NEW", "METRICS"), rows, right=("STEP", "SIZE", "NEW"))


def state_text(item: CheckpointSummary) -> str:
    """The state with what a person must know beside it, such as `committed, pinned, off line`."""
    marks = [item.state.value]
    if item.quarantined:
        marks.append("quarantined")
    if item.pinned:
        marks.append("pinned")
    if item.state is CheckpointState.COMMITTED and not item.on_line:
        marks.append("off line")
    return ", ".join(marks)


def metrics_text(metrics: dict[str, float]) -> str:
    """The first metrics by name, and how many more there are."""
    shown = [f"{name}={metric_text(metrics[name])}" for name in sorted(metrics)[:_SHOWN_METRICS]]
    left = len(metrics) - _SHOWN_METRICS
    return " ".join(shown) + (f" and {left} more" if left > 0 else "")
