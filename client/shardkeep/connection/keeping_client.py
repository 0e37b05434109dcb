"""Requests about what is kept: retention policies, tags, and deleting and restoring runs and projects."""

from __future__ import annotations

from collections.abc import Iterator

from shardkeep.connection.service_client import ServiceClient
from shardkeep.protocol import routes
from shardkeep.protocol.messages import (
    CheckpointInfo,
    Page,
    ProjectInfo,
    Restore,
    RetentionAnswer,
    RetentionPlanAnswer,
    RetentionRules,
    RunInfo,
)


class KeepingClient(ServiceClient):
    """What those who keep house ask, over the same connections. A `run` of None means the project itself."""

    def policy(self, project: str, run: str | None = None) -> RetentionAnswer:
        """The policy set here, and the one in force."""
        return self._ask("GET", _retention(project, run), RetentionAnswer)

    def set_policy(self, project: str, run: str | None, rules: RetentionRules) -> RetentionAnswer:
        """Set the policy in place of the one before."""
        return self._ask("PUT", _retention(project, run), RetentionAnswer, rules)

    def clear_policy(self, project: str, run: str | None = None) -> RetentionAnswer:
        """Remove the policy set here."""
        return self._ask("DELETE", _retention(project, run), RetentionAnswer)

    def plan(self, project: str, run: str | None = None, rules: RetentionRules | None = None) -> RetentionPlanAnswer:
        """What the policies in force, or `rules` in their place, would delete now. Deletes nothing."""
        method = "GET" if rules is None else "POST"
        return self._ask(method, f"{_retention(project, run)}/plan", RetentionPlanAnswer, rules)

    def apply(self, project: str, run: str | None = None) -> RetentionPlanAnswer:
        """Apply the policies in force now."""
        return self._ask("POST", f"{_retention(project, run)}/apply", RetentionPlanAnswer)

    def tag(self, checkpoint_id: str, tag: str, *, only: bool = False) -> CheckpointInfo:
        """Tag a checkpoint; with `only` the run's other checkpoints lose the tag."""
        url = routes.path(routes.TAG, checkpoint=checkpoint_id, tag=tag)
        return self._ask("PUT", url, CheckpointInfo, query={"only": only or None})

    def untag(self, checkpoint_id: str, tag: str) -> CheckpointInfo:
        """Take a tag from a checkpoint."""
        return self._ask("DELETE", routes.path(routes.TAG, checkpoint=checkpoint_id, tag=tag), CheckpointInfo)

    def deleted_projects(self) -> Iterator[ProjectInfo]:
        """Projects that were deleted and not restored."""
        return self._pages(routes.PROJECTS, Page[ProjectInfo], {"deleted": True})

    def deleted_runs(self, project: str) -> Iterator[RunInfo]:
        """Runs of a project that were deleted and not restored."""
        return self._pages(routes.path(routes.RUNS, project=project), Page[RunInfo], {"deleted": True})

    def project_info(self, project: str) -> ProjectInfo:
        """One project by its name."""
        return self._ask("GET", routes.path(routes.PROJECT, project=project), ProjectInfo)

    def run_by_id(self, run_id: str) -> RunInfo:
        """A run, a deleted one too."""
        return self._ask("GET", routes.path(routes.RUN_BY_ID, run=run_id), RunInfo)

    def delete_run(self, run_id: str, version: int, *, force: bool = False) -> RunInfo:
        """Delete a run and its checkpoints, restorable until they are purged."""
        url = routes.path(routes.RUN_BY_ID, run=run_id)
        return self._ask("DELETE", url, RunInfo, query={"force": force or None}, headers=_seen(version))

    def restore_run(self, run_id: str, version: int, *, name: str | None = None) -> RunInfo:
        """Undo that, under another name if one is given."""
        url = routes.path(routes.RUN_RESTORE, run=run_id)
        return self._ask("POST", url, RunInfo, Restore(name=name), headers=_seen(version))

    def project_by_id(self, project_id: str) -> ProjectInfo:
        """A project, a deleted one too."""
        return self._ask("GET", routes.path(routes.PROJECT_BY_ID, project=project_id), ProjectInfo)

    def delete_project(self, project_id: str, version: int, *, force: bool = False) -> ProjectInfo:
        """Delete a project and its runs, restorable until they are purged."""
        url = routes.path(routes.PROJECT_BY_ID, project=project_id)
        return self._ask("DELETE", url, ProjectInfo, query={"force": force or None}, headers=_seen(version))

    def restore_project(self, project_id: str, version: int, *, name: str | None = None) -> ProjectInfo:
        """Undo that, under another name if one is given."""
        url = routes.path(routes.PROJECT_RESTORE, project=project_id)
        return self._ask("POST", url, ProjectInfo, Restore(name=name), headers=_seen(version))


def _retention(project: str, run: str | None) -> str:
    if run is None:
        return routes.path(routes.PROJECT_RETENTION, project=project)
    return routes.path(routes.RUN_RETENTION, project=project, run=run)


def _seen(version: int) -> dict[str, str]:
    return {"if-match": f'"{version}"'}
