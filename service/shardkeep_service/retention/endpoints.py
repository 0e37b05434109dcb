"""Routes of retention: the policy of a project or a run, what it comes to, and applying it now."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from shardkeep.protocol import routes
from shardkeep.protocol.messages import RetentionAnswer, RetentionPlanAnswer, RetentionRules
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.retention import service
from shardkeep_service.seen_versions import IfMatch, seen_version_if_given, with_etag
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["retention"])

Context = Annotated[ServiceContext, Depends(get_context)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
Admin = Annotated[Principal, Depends(requires(Scope.ADMIN))]


@router.get(routes.PROJECT_RETENTION)
def get_project_policy(context: Context, principal: Reader, project: str, response: Response) -> RetentionAnswer:
    """The policy of a project; its version is the ETag."""
    return with_etag(response, service.get_policy(context, principal, project, None))


@router.put(routes.PROJECT_RETENTION)
def set_project_policy(
    context: Context, principal: Admin, project: str, body: RetentionRules, response: Response, if_match: IfMatch = None
) -> RetentionAnswer:
    """Sets the policy of a project, for its runs that have none of their own."""
    seen = seen_version_if_given(if_match)
    return with_etag(response, service.set_policy(context, principal, project, None, body, seen=seen))


@router.delete(routes.PROJECT_RETENTION)
def clear_project_policy(
    context: Context, principal: Admin, project: str, response: Response, if_match: IfMatch = None
) -> RetentionAnswer:
    """Removes the policy of a project."""
    seen = seen_version_if_given(if_match)
    return with_etag(response, service.clear_policy(context, principal, project, None, seen=seen))


@router.get(routes.PROJECT_RETENTION_PLAN)
def plan_project(context: Context, principal: Reader, project: str) -> RetentionPlanAnswer:
    """What the policies in force would delete in a project now."""
    return service.dry_run(context, principal, project, None, None)


@router.post(routes.PROJECT_RETENTION_PLAN)
def try_project_policy(context: Context, principal: Reader, project: str, body: RetentionRules) -> RetentionPlanAnswer:
    """What these rules would delete now, if they were the project's."""
    return service.dry_run(context, principal, project, None, body)


@router.post(routes.PROJECT_RETENTION_APPLY)
def apply_project_policy(context: Context, principal: Admin, project: str) -> RetentionPlanAnswer:
    """Applies the policies in force in a project now."""
    return service.apply_now(context, principal, project, None)


@router.get(routes.RUN_RETENTION)
def get_run_policy(context: Context, principal: Reader, project: str, run: str, response: Response) -> RetentionAnswer:
    """The policy of a run, and the one in force for it; the version of the run's own is the ETag."""
    return with_etag(response, service.get_policy(context, principal, project, run))


@router.put(routes.RUN_RETENTION)
def set_run_policy(
    context: Context,
    principal: Admin,
    project: str,
    run: str,
    body: RetentionRules,
    response: Response,
    if_match: IfMatch = None,
) -> RetentionAnswer:
    """Sets the policy of a run, in place of its project's."""
    seen = seen_version_if_given(if_match)
    return with_etag(response, service.set_policy(context, principal, project, run, body, seen=seen))


@router.delete(routes.RUN_RETENTION)
def clear_run_policy(
    context: Context, principal: Admin, project: str, run: str, response: Response, if_match: IfMatch = None
) -> RetentionAnswer:
    """Removes the policy of a run: its project's is in force again."""
    seen = seen_version_if_given(if_match)
    return with_etag(response, service.clear_policy(context, principal, project, run, seen=seen))


@router.get(routes.RUN_RETENTION_PLAN)
def plan_run(context: Context, principal: Reader, project: str, run: str) -> RetentionPlanAnswer:
    """What the policy in force would delete of a run now."""
    return service.dry_run(context, principal, project, run, None)


@router.post(routes.RUN_RETENTION_PLAN)
def try_run_policy(
    context: Context, principal: Reader, project: str, run: str, body: RetentionRules
) -> RetentionPlanAnswer:
    """What these rules would delete now, if they were the run's."""
    return service.dry_run(context, principal, project, run, body)


@router.post(routes.RUN_RETENTION_APPLY)
def apply_run_policy(context: Context, principal: Admin, project: str, run: str) -> RetentionPlanAnswer:
    """Applies the policy in force to a run now."""
    return service.apply_now(context, principal, project, run)
