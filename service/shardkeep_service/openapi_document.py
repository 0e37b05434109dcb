"""The OpenAPI description: FastAPI's, with what it cannot know added in one place.

Every answer that is no success is a problem document, by the same rule on every route; bulk bodies are binary; every
route but the public ones takes a bearer token, and says which scope it needs. `docs/openapi.json` is a copy, kept
current by a test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import MEANINGS, PROBLEM_CONTENT_TYPE, ErrorCode
from shardkeep.protocol.messages import Problem
from shardkeep.protocol.versions import PROTOCOL_VERSION
from shardkeep_service.access.browser_cookie import SECURE_NAME
from shardkeep_service.access.default_deny import declared_scope, is_public

_BINARY: Final = {routes.BINARY_CONTENT_TYPE: {"schema": {"type": "string", "format": "binary"}}}
_TEXT: Final = {"text/plain": {"schema": {"type": "string"}}}
_BINARY_REQUESTS: Final = frozenset(
    {("PUT", routes.CHUNK), ("PUT", routes.MANIFEST), ("POST", routes.LOAD_PLAN)},
)
_ANSWERS: Final = {
    ("GET", routes.CHUNK): _BINARY,
    ("GET", routes.MANIFEST): _BINARY,
    ("POST", routes.LOAD_PLAN): _BINARY,
    ("GET", routes.METRICS): _TEXT,
}
_PROBLEM: Final = "#/components/schemas/Problem"
_SCHEME: Final = "token"
_COOKIE: Final = "sign_in"
# Which problems a request can be answered with follows from what it is.
_ANY: Final = (400, 500, 503)
_WITH_TOKEN: Final = (401, 403)
_WITH_NAMES: Final = (404, 422)
_WITH_BODY: Final = (408, 411, 413)
_CHANGES: Final = (409, 507)
_WITH_VERSION: Final = (412, 428)
_WITH_RANGE: Final = (416,)
_WHEN_OFTEN: Final = (429,)
_HEADERS: Final = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """The document; made once and kept with the application."""
    if app.openapi_schema is None:
        app.openapi_schema = _document(app)
    return app.openapi_schema


def document_text(app: FastAPI) -> str:
    """The document as it lies in the repository."""
    return json.dumps(openapi_document(app), indent=1, sort_keys=True) + "\n"


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=str(PROTOCOL_VERSION),
        description="A checkpoint store for sharded training. docs/protocol.md says what the routes mean.",
        routes=app.routes,
    )
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = _problem_schema()
    document["components"]["securitySchemes"] = {
        _SCHEME: {"type": "http", "scheme": "bearer"},
        _COOKIE: {"type": "apiKey", "in": "cookie", "name": SECURE_NAME},
    }
    document["components"]["responses"] = {str(status): _problem_answer(status) for status in sorted(_statuses())}
    for route, method, operation in _operations(app, document):
        _complete(route, method, operation)
    return document


def _operations(app: FastAPI, document: dict[str, Any]) -> Iterator[tuple[APIRoute, str, dict[str, Any]]]:
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method in sorted(route.methods or ()):
                yield route, method, document["paths"][route.path_format][method.lower()]


def _complete(route: APIRoute, method: str, operation: dict[str, Any]) -> None:
    key = (method, route.path)
    operation["operationId"] = f"{method.lower()}_{route.path.strip('/').replace('/', '_').translate(_PLAIN)}"
    if key in _BINARY_REQUESTS:
        operation["requestBody"] = {"required": True, "content": _BINARY}
    if key in _ANSWERS:
        operation["responses"]["200"] = {"description": "the bytes", "content": _ANSWERS[key]}
    if key == ("GET", routes.CHUNK):
        operation["responses"]["206"] = {"description": "one range of them", "content": _BINARY}
    if key == ("PUT", routes.CHUNK):
        operation["responses"]["200"] = {**operation["responses"]["201"], "description": "it was present"}
    operation["responses"].pop("422", None)
    for status in _problem_statuses(route, method, operation):
        operation["responses"][str(status)] = {"$ref": f"#/components/responses/{status}"}
    if not is_public(route):
        operation["security"] = [{_COOKIE: []}] if route.path == routes.SIGN_IN else [{_SCHEME: []}, {_COOKIE: []}]
        operation["x-shardkeep-scope"] = declared_scope(route)


def _problem_statuses(route: APIRoute, method: str, operation: dict[str, Any]) -> set[int]:
    """By rule, not by hand: a route added tomorrow is described too."""
    if route.path == routes.LIVEZ:
        return {500}
    if route.path == routes.READYZ:
        return set(_ANY)
    parameters = operation.get("parameters", ())
    headers = {parameter["name"].lower() for parameter in parameters if parameter["in"] == "header"}
    queries = {parameter["name"] for parameter in parameters if parameter["in"] == "query"}
    statuses = {*_ANY, *_WITH_TOKEN}
    if (method, route.path) == ("POST", routes.SIGN_IN):
        return {*statuses, *_WITH_BODY, *_CHANGES, *_WHEN_OFTEN}
    if "{" in route.path or "project" in queries or "requestBody" in operation:
        statuses.update(_WITH_NAMES)
    if "requestBody" in operation or method in ("POST", "PUT", "DELETE"):
        statuses.update(_WITH_BODY)
    if method != "GET":
        statuses.update(_CHANGES)
    if "if-match" in headers:
        statuses.update(_WITH_VERSION)
    if "range" in headers:
        statuses.update(_WITH_RANGE)
    return statuses


def _statuses() -> set[int]:
    return {meaning.status for meaning in MEANINGS.values()}


def _problem_answer(status: int) -> dict[str, Any]:
    codes = [code.value for code in ErrorCode if MEANINGS[code].status == status]
    answer: dict[str, Any] = {
        "description": f"{HTTPStatus(status).phrase}: {', '.join(codes)}",
        "content": {PROBLEM_CONTENT_TYPE: {"schema": {"$ref": _PROBLEM}}},
    }
    if status in _HEADERS:
        name = _HEADERS[status]
        answer["headers"] = {name: {"schema": {"type": "string"}}}
    return answer


def _problem_schema() -> dict[str, Any]:
    schema = Problem.model_json_schema()
    schema["properties"]["code"]["enum"] = sorted(code.value for code in ErrorCode)
    return schema


_PLAIN: Final = str.maketrans({"{": None, "}": None, "-": "_"})
