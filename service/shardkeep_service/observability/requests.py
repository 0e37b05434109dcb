"""The request middleware: gives each request an id, logs it as one line, and answers what nothing else answered."""

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
from shardkeep_service.observability.request_ids import choose_request_id

log = structlog.get_logger("shardkeep.requests")

CLIENT_CLOSED: Final = 499
"""Logged as the status of a request whose client went away before it was answered."""
_QUIET: Final = frozenset({routes.LIVEZ, routes.READYZ})


@dataclass(slots=True)
class _Tally:
    status: int = CLIENT_CLOSED
    started: bool = False
    sent_bytes: int = 0


class RequestMiddleware:
    """Pure ASGI: adds no task and no copy, so bodies stream through it untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = choose_request_id(scope)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        header = (routes.REQUEST_ID_HEADER.encode(), request_id.encode())
        tally, began = _Tally(), time.perf_counter()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                tally.started, tally.status = True, message["status"]
                message["headers"] = [*message.get("headers", []), header]
            else:
                tally.sent_bytes += len(message.get("body", b""))
            await send(message)

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
            _log_request(scope, tally, time.perf_counter() - began)


def _log_request(scope: Scope, tally: _Tally, seconds: float) -> None:
    state: dict[str, Any] = scope["state"]
    template = getattr(scope.get("route"), "path", None)
    if template in _QUIET and tally.status < 400:
        return
    principal, refusal, error = state.get("principal"), state.get("refusal"), state.get("error")
    details = {
        "request_id": state["request_id"],
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
