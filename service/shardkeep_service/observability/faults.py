"""Faults on request: a test aid that kills the process or drops a connection at a chosen request.

Installed only when SHARDKEEP_SERVICE_FAULT is set, to `<kind>:<METHOD> <route template>:<nth>:<before|after>`, for
example `kill:PUT /v1/checkpoints/{checkpoint}/manifests/{rank}:2:after`. `kill` is SIGKILL; `drop` closes the
connection without an answer. `before` acts before the request is handled, `after` when it is handled and not yet
answered. The nth matching request is hit, counted from 1, and no other.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from typing import Literal

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shardkeep_service.http_protocol import ABORT

_SPECIFICATION = re.compile(
    r"(?P<kind>kill|drop):(?P<method>[A-Z]+) (?P<route>/\S*?):(?P<nth>\d+):(?P<when>before|after)"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, see the module."""

    kind: Literal["kill", "drop"]
    method: str
    path: re.Pattern[str]
    nth: int
    when: Literal["before", "after"]


def parse_fault(text: str) -> Fault:
    """ValueError when the text is not a fault."""
    match = _SPECIFICATION.fullmatch(text)
    if match is None:
        raise ValueError(f"not a fault: {text!r}; write kill|drop:<METHOD> <route template>:<nth>:before|after")
    route = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(match["route"]))
    kind: Literal["kill", "drop"] = "kill" if match["kind"] == "kill" else "drop"
    when: Literal["before", "after"] = "before" if match["when"] == "before" else "after"
    return Fault(kind, match["method"], re.compile(route), int(match["nth"]), when)


class FaultMiddleware:
    """Outermost of all, so that nothing turns the fault into an answer."""

    def __init__(self, app: ASGIApp, fault: Fault) -> None:
        self._app = app
        self._fault = fault
        self._seen = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, or does not."""
        if scope["type"] != "http" or not self._hits(scope):
            await self._app(scope, receive, send)
            return
        if self._fault.when == "before":
            await self._act(scope)
            return

        async def swallow(_message: Message) -> None:
            """Drops the answer."""

        await self._app(scope, receive, swallow)
        await self._act(scope)

    def _hits(self, scope: Scope) -> bool:
        if scope["method"] != self._fault.method or self._fault.path.fullmatch(scope["path"]) is None:
            return False
        self._seen += 1
        return self._seen == self._fault.nth

    async def _act(self, scope: Scope) -> None:
        if self._fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        scope["extensions"][ABORT]()
