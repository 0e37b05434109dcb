"""No route can be served without a declared scope, except the public ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Mount, Route

from shardkeep.protocol import routes
from shardkeep_service.access.default_deny import (
    PUBLIC,
    UndeclaredScope,
    check_every_route_declares_a_scope,
    declared_scope,
    is_public,
)
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.main import create_app
from shardkeep_service.settings import Settings

READS = frozenset({"GET", "HEAD"})
READING_POSTS = frozenset(
    {
        routes.LOAD_PLAN,
        routes.READ_TARGETS,
        routes.DAMAGE,
        routes.PROJECT_RETENTION_PLAN,
        routes.RUN_RETENTION_PLAN,
    }
)
"""Requests with a body that change nothing, or only report."""
OF_ANY_TOKEN = frozenset({routes.METRICS, routes.TOKEN_SELF, routes.SIGN_IN})


def nested(principal: Annotated[Principal, Depends(requires(Scope.ADMIN))]) -> Principal:
    return principal


def route_table(tmp_path: Path) -> list[APIRoute]:
    table = create_app(Settings(data_dir=tmp_path)).routes
    assert all(isinstance(route, APIRoute) for route in table)
    return [route for route in table if isinstance(route, APIRoute)]


def test_E194_every_route_declares_the_scope_that_its_kind_needs(tmp_path: Path) -> None:
    for route in route_table(tmp_path):
        scope = declared_scope(route)
        if is_public(route):
            assert scope is None
        elif route.path in OF_ANY_TOKEN:
            assert scope is Scope.METRICS
        elif (route.methods or set()) <= READS or route.path in READING_POSTS:
            assert scope in (Scope.READ, Scope.ADMIN), route.path
        else:
            assert scope in (Scope.WRITE, Scope.DELETE, Scope.ADMIN), route.path


def test_every_route_of_the_protocol_is_served(tmp_path: Path) -> None:
    served = {route.path for route in route_table(tmp_path)}
    named = {value for name, value in vars(routes).items() if name.isupper() and str(value).startswith("/")}
    assert named - served == set()


def test_only_liveness_readiness_signing_in_and_out_and_files_are_public() -> None:
    paths = ("/livez", "/readyz", "/ui", "/ui/{path:path}", "/")
    asked = {(method, path) for method in READS for path in paths}
    assert asked | {("POST", "/v1/sign-in"), ("DELETE", "/v1/sign-in")} == PUBLIC


def test_another_method_of_a_public_path_is_not_public() -> None:
    router = APIRouter()

    @router.api_route("/livez", methods=["GET", "PUT"])
    def both() -> str:
        return "secret"

    with pytest.raises(UndeclaredScope, match="/livez"):
        check_every_route_declares_a_scope(router.routes)


def test_without_the_dashboard_nothing_of_it_is_served(tmp_path: Path) -> None:
    table = create_app(Settings(data_dir=tmp_path, ui_enabled=False)).routes
    paths = {getattr(route, "path", "") for route in table}
    assert not [path for path in paths if path in ("/", routes.SIGN_IN) or path.startswith(routes.UI)]


def test_a_route_without_a_scope_stops_the_application_from_being_built() -> None:
    router = APIRouter()

    @router.get("/v1/open")
    def open_to_all() -> str:
        return "secret"

    with pytest.raises(UndeclaredScope, match="/v1/open"):
        check_every_route_declares_a_scope(router.routes)


@pytest.mark.parametrize("route", [Route("/v1/x", endpoint=print), Mount("/static", routes=[])])
def test_other_kinds_of_routes_cannot_be_added(route: BaseRoute) -> None:
    with pytest.raises(UndeclaredScope):
        check_every_route_declares_a_scope([route])


def test_a_scope_declared_by_a_nested_dependency_counts() -> None:
    router = APIRouter()

    @router.get("/v1/nested", response_model=None)
    def endpoint(principal: Annotated[Principal, Depends(nested)]) -> None: ...

    check_every_route_declares_a_scope(router.routes)
    assert declared_scope(router.routes[0]) is Scope.ADMIN
