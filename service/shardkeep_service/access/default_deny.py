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

PUBLIC: Final = frozenset({routes.LIVEZ, routes.READYZ})
"""The only routes without a token: a supervisor must be able to ask whether the process lives."""


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
        path = getattr(route, "path", repr(route))
        if path not in PUBLIC and declared_scope(route) is None:
            raise UndeclaredScope(f"{path} declares no scope: give it Depends(requires(Scope...))")


def _calls(dependant: Dependant) -> Iterator[object]:
    for dependency in dependant.dependencies:
        yield dependency.call
        yield from _calls(dependency)
