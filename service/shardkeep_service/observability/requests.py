"""The request middleware: gives a request its id and trace, logs and counts it, answers what nothing else answered."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shardkeep.protocol import routes
from shardkeep_service.error_responses import problem_response, refusal_of
from shardkeep_service.errors import Refusal
from shardkeep_service.observability.metrics import Metrics
from shardkeep_service.observability.request_ids import choose_request_id
from shardkeep_service.observability.trace_context import begin_trace
from shardkeep_service.security_headers import guarded

log = structlog.get_logger("shardkeep.requests")

CLIENT_CLOSED: Final = 499
"""Logged as the status of a request whose client went away before it was answered."""
_QUIET: Final = frozenset({routes.LIVEZ, routes.READYZ, routes.METRICS})
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
NO_ROUTE: Final = "none"
OTHER_METHOD: Final = "other"
"""Labels of what no route matches: clients invent paths and methods without end."""


@dataclass(slots=True)
class _Tally:
    status: int = CLIENT_CLOSED
    started: bool = False
    sent_bytes: int = 0


class RequestMiddleware:
    """Pure ASGI: adds no task and no copy, so bodies stream through it untouched."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = choose_request_id(scope)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        trace = begin_trace(scope)
        state["trace_id"] = trace.trace_id
        headers = [
            (routes.REQUEST_ID_HEADER.encode(), request_id.encode()),
            (routes.TRACE_HEADER.encode(), trace.header.encode()),
        ]
        tally, began = _Tally(), time.perf_counter()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                tally.started, tally.status = True, message["status"]
                message["headers"] = guarded([*message.get("headers", []), *headers])
            else:
                tally.sent_bytes += len(message.get("body", b""))
            await send(message)

        self._metrics.requests_in_progress.inc()
        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            tally.status = CLIENT_CLOSED
        except Refusal as refusal:
            state["refusal"] = refusal
            await problem_response(refusal, request_id)(scope, receive, send_with_id)
        except Exception as error:  # the edge of the request: log it whole, tell the client nothing of it
            state["error"] = error
            if tally.started:
                raise
            await problem_response(refusal_of(error), request_id)(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - began
            self._metrics.requests_in_progress.dec()
            self._count(scope, tally, seconds)
            _log_request(scope, tally, seconds)

    def _count(self, scope: Scope, tally: _Tally, seconds: float) -> None:
        metrics = self._metrics
        method = scope["method"] if scope["method"] in _METHODS else OTHER_METHOD
        route = _template(scope) or NO_ROUTE
        metrics.requests.labels(method, route, tally.status).inc()
        metrics.request_seconds.labels(method, route).observe(seconds)
        metrics.request_bytes.labels(method, route).inc(_content_length(scope))
        metrics.response_bytes.labels(method, route).inc(tally.sent_bytes)
        refusal = scope["state"].get("refusal")
        if refusal is not None:
            metrics.refusals.labels(refusal.code.value).inc()


def _template(scope: Scope) -> str | None:
    return getattr(scope.get("route"), "path", None)


def _log_request(scope: Scope, tally: _Tally, seconds: float) -> None:
    state: dict[str, Any] = scope["state"]
    template = _template(scope)
    if template in _QUIET and tally.status < 400:
        return
    principal, refusal, error = state.get("principal"), state.get("refusal"), state.get("error")
    details = {
        "request_id": state["request_id"],
        "trace_id": state["trace_id"],
        "method": scope["method"],
        "route": template,
        "status": tally.status,
        "milliseconds": round(seconds * 1000, 1),
        "bytes_in": _content_length(scope),
        "bytes_out": tally.sent_bytes,
        "token_id": getattr(principal, "token_id", None),
        "checkpoint": scope.get("path_params", {}).get("checkpoint"),
        "code": getattr(refusal, "code", None),
    }
    if error is not None:
        log.error("request_failed", **details, exc_info=error)
    else:
        log.info("request", **details)


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
