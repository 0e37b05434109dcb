"""The FastAPI dependency by which a route declares the scope it needs; `default_deny.py` requires one everywhere."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access.bearer import find_bearer_token
from shardkeep_service.access.browser_requests import BrowserRequests
from shardkeep_service.access.gate import Gate
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.scopes import Scope
from shardkeep_service.errors import Refusal

__all__ = ["Principal", "Scope", "ScopeRequirement", "SignInRequirement", "requires", "requires_sign_in"]


class ScopeRequirement:
    """Lets a request through whose token, or whose sign-in's token, has the scope, and gives its principal."""

    def __init__(self, scope: Scope) -> None:
        self.scope: Final = scope

    async def __call__(self, request: Request) -> Principal:
        """The principal of this request; refuses 401 and 403. A bearer token wins over a cookie."""
        text = find_bearer_token(request.headers.get("authorization"))
        principal = await (_holder_of_token(request, text) if text is not None else _holder_of_cookie(request))
        request.scope.setdefault("state", {})["principal"] = principal
        if not principal.scope.includes(self.scope):
            raise Refusal(
                ErrorCode.SCOPE_TOO_NARROW,
                f"this needs a token of scope {self.scope}; {principal.name!r} has scope {principal.scope}; ask an"
                " administrator for another token",
            )
        return principal


class SignInRequirement(ScopeRequirement):
    """Lets a request through that comes with the cookie of a sign-in, and never looks at a bearer token."""

    async def __call__(self, request: Request) -> Principal:
        """The principal of the sign-in; refuses 401 and 403."""
        principal = await _holder_of_cookie(request)
        request.scope.setdefault("state", {})["principal"] = principal
        return principal


async def _holder_of_token(request: Request, text: str) -> Principal:
    gate: Gate = request.app.state.gate
    principal = gate.remembered(text)
    return principal if principal is not None else await run_in_threadpool(gate.recognise, text)


async def _holder_of_cookie(request: Request) -> Principal:
    """Who is signed in; refuses `token_missing`, `sign_in_ended`, `origin_refused` and `csrf_missing`."""
    gate: Gate = request.app.state.gate
    browser: BrowserRequests = request.app.state.browser_requests
    secret = browser.secret_of(request)
    principal = gate.remembered_sign_in(secret)
    return principal if principal is not None else await run_in_threadpool(gate.recognise_sign_in, secret)


requires_sign_in: Final = SignInRequirement(Scope.METRICS)
_REQUIREMENTS: Final = {scope: ScopeRequirement(scope) for scope in Scope}


def requires(scope: Scope) -> ScopeRequirement:
    """The requirement of a scope, for `Depends(requires(Scope.READ))`."""
    return _REQUIREMENTS[scope]
