"""The bounds on bodies that FastAPI reads whole: size and idle time. Bulk bodies have theirs in `chunks/bodies.py`."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.errors import Refusal

SIGN_IN_BYTES: Final = 4096
"""Of a body that anybody may send."""
_BULK: Final = re.compile(r"/v1/checkpoints/[^/]+/(?:chunks|manifests)/[^/]+")


class BodyLimitMiddleware:
    """Pure ASGI; wraps `receive` of requests whose body is small by nature."""

    def __init__(self, app: ASGIApp, *, limit_bytes: int, idle_timeout_seconds: float) -> None:
        self._app = app
        self._limit_bytes = limit_bytes
        self._idle_timeout_seconds = idle_timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http" or (scope["method"] == "PUT" and _BULK.fullmatch(scope["path"])):
            await self._app(scope, receive, send)
            return
        received_bytes, complete = 0, False
        limit_bytes = SIGN_IN_BYTES if scope["path"] == routes.SIGN_IN else self._limit_bytes

        async def receive_bounded() -> Message:
            nonlocal received_bytes, complete
            if complete:
                return await receive()
            message = await self._receive_in_time(receive)
            received_bytes += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if received_bytes > limit_bytes:
                raise _closing(ErrorCode.BODY_TOO_LARGE, f"the body has more than the {limit_bytes} bytes taken here")
            return message

        await self._app(scope, receive_bounded, send)

    async def _receive_in_time(self, receive: Receive) -> Message:
        try:
            async with asyncio.timeout(self._idle_timeout_seconds):
                return await receive()
        except TimeoutError:
            detail = f"no byte of the body arrived for {self._idle_timeout_seconds:g} s"
            raise _closing(ErrorCode.IDLE_TIMEOUT, detail) from None


def _closing(code: ErrorCode, detail: str) -> Refusal:
    refusal = Refusal(code, detail)
    refusal.headers["connection"] = "close"
    return refusal
