"""Deleting and restoring whole runs and projects: the part of `rm` and `restore` that is not about one checkpoint."""

from __future__ import annotations

import sys

from shardkeep.cli.exit_codes import refusal, usage_error
from shardkeep.cli.human_text import counted, printable, size_text
from shardkeep.cli.invocation import Invocation
from shardkeep.errors import NotFound
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.identifiers import is_name, split_run_name
from shardkeep.protocol.messages import ProjectInfo, RunInfo

RUN_ID = "run_"
PROJECT_ID = "prj_"


def remove_run(invocation: Invocation, where: str, *, yes: bool, force: bool) -> None:
    """Delete the run named `project/run`."""
    info = invocation.service.run_info(*split_run_name(where))
    if not yes:
        kept = counted(info.committed_checkpoints, "committed checkpoint")
        _confirm(invocation, f"Delete run {where} with {kept}?", f"run {where}")
    deleted = invocation.keeping.delete_run(info.id, info.version, force=force)
    what = f"deleted run {where}; `shardkeep restore {deleted.id}` brings it back until it is purged"
    _answer(invocation, {"run": deleted}, what)


def remove_project(invocation: Invocation, where: str, *, yes: bool, force: bool) -> None:
    """Delete a project."""
    if not is_name(where):
        raise usage_error(f"{where!r} cannot name a project")
    info = invocation.keeping.project_info(where)
    if not yes:
        kept = f"{counted(info.runs, 'run')}, {size_text(info.stored_bytes)}"
        _confirm(invocation, f"Delete project {where} with {kept}?", f"project {where}")
    deleted = invocation.keeping.delete_project(info.id, info.version, force=force)
    what = f"deleted project {where}; `shardkeep restore {deleted.id}` brings it back until it is purged"
    _answer(invocation, {"project": deleted}, what)


def restore_run(invocation: Invocation, where: str, *, name: str | None) -> None:
    """Restore the run with an id, or the only deleted one named `project/run`."""
    info = invocation.keeping.run_by_id(where) if where.startswith(RUN_ID) else _deleted_run(invocation, where)
    restored = invocation.keeping.restore_run(info.id, info.version, name=name)
    kept = counted(restored.committed_checkpoints, "committed checkpoint")
    _answer(invocation, {"run": restored}, f"restored run {restored.project}/{restored.name} with {kept}")


def restore_project(invocation: Invocation, project_id: str, *, name: str | None) -> None:
    """Restore the project with an id."""
    info = invocation.keeping.project_by_id(project_id)
    restored = invocation.keeping.restore_project(info.id, info.version, name=name)
    _answer(invocation, {"project": restored}, f"restored project {restored.name} with {counted(restored.runs, 'run')}")


def _deleted_run(invocation: Invocation, where: str) -> RunInfo:
    project, name = split_run_name(where)
    found = [run for run in invocation.keeping.deleted_runs(project) if run.name == name]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"{where} is not deleted", code=ErrorCode.UNKNOWN_RUN, status=404)
    listed = "\n  ".join(f"{run.id} (deleted {run.deleted_at:%Y-%m-%d %H:%M:%S})" for run in found)
    raise usage_error(f"{len(found)} deleted runs were named {where}; give the id of one:\n  {listed}")


def _confirm(invocation: Invocation, question: str, what: str) -> None:
    if invocation.output.as_json or not sys.stdin.isatty():
        raise refusal(f"{what} is not deleted: nobody can be asked here, give --yes", code="not_confirmed")
    sys.stderr.write(printable(f"{question} It can be restored until it is purged. [y/N] "))
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise refusal(f"{what} is not deleted", code="not_confirmed")


def _answer(invocation: Invocation, document: dict[str, RunInfo | ProjectInfo], text: str) -> None:
    invocation.output.answer(document, show=lambda screen: screen.line(text))
