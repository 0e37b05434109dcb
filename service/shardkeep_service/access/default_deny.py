"""Default deny: no application can be built with a route that declares no scope, unless the route is public by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from shardkeep.protocol import routes
from shardkeep_service.access.dependency import ScopeRequirement
from shardkeep_service.access.scopes import Scope

_READ_BY_ANYONE: Final = (routes.LIVEZ, routes.READYZ, "/", routes.UI, f"{routes.UI}/{{path:path}}")
PUBLIC: Final = frozenset(
    {
        ("POST", routes.SIGN_IN),
        ("DELETE", routes.SIGN_IN),
        *((method, path) for method in ("GET", "HEAD") for path in _READ_BY_ANYONE),
    }
)
"""The only requests without a token: whether the process lives; a sign-in, which checks its token itself, and its end;
the files of the dashboard, which are the same for everyone."""


class UndeclaredScope(RuntimeError):
    """A route that anyone could call."""


def declared_scope(route: BaseRoute) -> Scope | None:
    """The scope a route needs, or None where it declares none."""
    if not isinstance(route, APIRoute):
        return None
    scopes = {call.scope for call in _calls(route.dependant) if isinstance(call, ScopeRequirement)}
    return max(scopes, key=lambda scope: sum(map(scope.includes, Scope)), default=None)


def check_every_route_declares_a_scope(table: Iterable[BaseRoute]) -> None:
    """UndeclaredScope for the first route that is neither public nor guarded."""
    for route in table:
        if not is_public(route) and declared_scope(route) is None:
            path = getattr(route, "path", repr(route))
            raise UndeclaredScope(f"{path} declares no scope: give it Depends(requires(Scope...))")


def is_public(route: BaseRoute) -> bool:
    """Whether every request that this route serves may come without a token."""
    if not isinstance(route, APIRoute) or not route.methods:
        return False
    return {(method, route.path) for method in route.methods} <= PUBLIC


def _calls(dependant: Dependant) -> Iterator[object]:
    for dependency in dependant.dependencies:
        yield dependency.call
        yield from _calls(dependency)
