"""Who may read metrics: a token of scope `metrics` or more that sees every project, or anyone where settings say so."""

from __future__ import annotations

from typing import Final

from fastapi import Request

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access.dependency import ScopeRequirement
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.scopes import Scope
from shardkeep_service.errors import Refusal
from shardkeep_service.service_context import context_of


class MetricsRequirement(ScopeRequirement):
    """Metrics speak of all projects together, so a token bound to some may not read them."""

    def __init__(self) -> None:
        super().__init__(Scope.METRICS)

    async def __call__(self, request: Request) -> Principal | None:  # type: ignore[override]
        """The principal, or None where metrics are public; refuses 401 and 403."""
        if context_of(request).settings.metrics_public:
            return None
        principal = await super().__call__(request)
        check_may_read(principal)
        return principal


def check_may_read(principal: Principal) -> None:
    """Refusal `scope_too_narrow` for a token bound to projects. Every scope includes that of metrics."""
    if principal.project_ids is not None:
        raise Refusal(
            ErrorCode.SCOPE_TOO_NARROW,
            f"metrics speak of every project and {principal.name!r} is bound to some; use a token of scope metrics that"
            " is bound to none",
        )


may_read_metrics: Final = MetricsRequirement()
