"""The route that shows the system to those who run it."""

from __future__ import annotations

import platform
from typing import Annotated

from fastapi import APIRouter, Depends

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import SystemInfo
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.capabilities import SERVICE_VERSION
from shardkeep_service.errors import Refusal
from shardkeep_service.moments import moment
from shardkeep_service.service_context import ServiceContext, get_context
from shardkeep_service.system.database_facts import database_info
from shardkeep_service.system.settings_shown import shown_settings
from shardkeep_service.system.store_facts import store_info

router = APIRouter(tags=["system"])


@router.get(routes.SYSTEM)
def get_system(
    context: Annotated[ServiceContext, Depends(get_context)],
    principal: Annotated[Principal, Depends(requires(Scope.ADMIN))],
) -> SystemInfo:
    """Versions, database, object store and settings of this process. Needs an admin token of all projects."""
    _check_sees_all_projects(principal)
    with context.database.read() as session:
        now = context.database.now(session)
    return SystemInfo(
        service_version=SERVICE_VERSION,
        python_version=platform.python_version(),
        started_at=context.started_at,
        now=moment(now),
        database=database_info(context),
        store=store_info(context),
        settings=shown_settings(context.settings),
    )


def _check_sees_all_projects(principal: Principal) -> None:
    """Whoever administers some projects only is a guest on the system."""
    if principal.project_ids is not None:
        raise Refusal(
            ErrorCode.SCOPE_TOO_NARROW,
            f"the system is shown to admin tokens of all projects; {principal.name!r} is bound to some",
        )
