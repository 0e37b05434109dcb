"""Draining: what a stopping service still takes.

Beginning an attempt and opening a checkpoint are refused; chunks, manifests and beats of what is open are taken until
the process ends. Long polls are answered at once, so that their clients ask again elsewhere. `server.py` begins it.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.errors import Refusal

RETRY_AFTER_SECONDS: Final = 2.0
_NEW_WORK: Final = re.compile(r"/v1/projects/[^/]+/runs/[^/]+/attempts|/v1/attempts/[^/]+/checkpoints")


class Drain:
    """Whether the service is stopping, and how many requests it serves. Changed on the event loop, read anywhere."""

    __slots__ = ("_begun", "_waiting", "running")

    def __init__(self) -> None:
        self._begun = False
        self._waiting: asyncio.Future[None] | None = None
        self.running = 0
        """Requests being served, long polls left out."""

    def begin(self) -> None:
        """From now on new work is refused. Repeating it changes nothing."""
        self._begun = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    @property
    def begun(self) -> bool:
        """Whether `begin` was called."""
        return self._begun

    def beginning(self) -> asyncio.Future[None]:
        """Done once `begin` was called."""
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_future()
            if self._begun:
                self._waiting.set_result(None)
        return self._waiting


class DrainMiddleware:
    """Pure ASGI; inside of the error responses, which answer what it raises."""

    def __init__(self, app: ASGIApp, drain: Drain) -> None:
        self._app = app
        self._drain = drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, or refuses it with `shutting_down`."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "GET" and b"wait_seconds=" in scope["query_string"]:
            await self._serve_poll(scope, receive, send)
            return
        if self._drain.begun and scope["method"] == "POST" and _NEW_WORK.fullmatch(scope["path"]):
            raise shutting_down()
        self._drain.running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._drain.running -= 1

    async def _serve_poll(self, scope: Scope, receive: Receive, send: Send) -> None:
        serving = asyncio.ensure_future(self._app(scope, receive, send))
        try:
            await asyncio.wait((serving, self._drain.beginning()), return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                raise shutting_down()
            serving.result()
        finally:
            serving.cancel()


def shutting_down() -> Refusal:
    """The refusal of new work."""
    detail = "this service is stopping; retry, another one or the restarted one will answer"
    return Refusal(ErrorCode.SHUTTING_DOWN, detail, retry_after_seconds=RETRY_AFTER_SECONDS)
