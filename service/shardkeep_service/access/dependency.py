"""The FastAPI dependency by which a route declares the scope it needs; `default_deny.py` requires one everywhere."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access.gate import Gate, bearer_token
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.scopes import Scope
from shardkeep_service.errors import Refusal

__all__ = ["Principal", "Scope", "ScopeRequirement", "requires"]


class ScopeRequirement:
    """Lets a request through whose token has the scope, and gives its principal."""

    def __init__(self, scope: Scope) -> None:
        self.scope: Final = scope

    async def __call__(self, request: Request) -> Principal:
        """The principal of this request; refuses 401 and 403."""
        gate: Gate = request.app.state.gate
        text = bearer_token(request.headers.get("authorization"))
        principal = gate.remembered(text)
        if principal is None:
            principal = await run_in_threadpool(gate.recognise, text)
        request.scope.setdefault("state", {})["principal"] = principal
        if not principal.scope.includes(self.scope):
            raise Refusal(
                ErrorCode.SCOPE_TOO_NARROW,
                f"this needs a token of scope {self.scope}; {principal.name!r} has scope {principal.scope}; ask an"
                " administrator for another token",
            )
        return principal


_REQUIREMENTS: Final = {scope: ScopeRequirement(scope) for scope in Scope}


def requires(scope: Scope) -> ScopeRequirement:
    """The requirement of a scope, for `Depends(requires(Scope.READ))`."""
    return _REQUIREMENTS[scope]
