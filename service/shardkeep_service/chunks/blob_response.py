"""A response that sends a stored object: by the kernel where it is a file, else in pieces, read one piece ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor
from typing import Final, TypeAlias

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from shardkeep_service.blob_store.blob_store import FileBacked
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.chunks.ranges import ByteRange
from shardkeep_service.http_protocol import SEND_FILE
from shardkeep_service.service_context import ServiceContext

SendFile: TypeAlias = Callable[[int, int, int, Executor], Awaitable[None]]
PIECE_BYTES: Final = 1 << 20


class BlobResponse(Response):
    """Sends a range of an object with its Content-Length. An error after the first piece closes the connection."""

    def __init__(
        self, context: ServiceContext, key: str, sent: ByteRange, headers: Mapping[str, str], *, media_type: str
    ) -> None:
        super().__init__(status_code=206 if sent.partial else 200, media_type=media_type)
        self._context = context
        self._key = key
        self._range = sent
        self.headers.update(headers)
        self.headers["content-length"] = str(sent.length)
        if sent.partial:
            self.headers["content-range"] = sent.content_range

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  (ASGI)
        """Sends it; for HEAD the headers only."""
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return
        send_file = scope.get("extensions", {}).get(SEND_FILE)
        if send_file is not None and isinstance(self._context.blob_store, FileBacked):
            await self._send_file(self._context.blob_store, send_file, start, send)
        else:
            await self._send_pieces(start, send)

    async def _send_file(self, store: FileBacked, send_file: SendFile, start: Message, send: Send) -> None:
        pool, loop = self._context.pools.storage, asyncio.get_running_loop()
        opening = store.opened(self._key, reaching=self._range.end)
        descriptor = await loop.run_in_executor(pool, opening.__enter__)
        try:
            await send(start)
            await send_file(descriptor, self._range.start, self._range.length, pool)
            await send({"type": "http.response.body", "body": b""})
        except ConnectionError as exc:
            raise ClientDisconnect from exc
        finally:
            opening.__exit__(None, None, None)

    async def _send_pieces(self, start: Message, send: Send) -> None:
        pool, loop = self._context.pools.storage, asyncio.get_running_loop()
        pieces = self._context.blob_store.stream(
            self._key, self._range.start, self._range.length, piece_bytes=PIECE_BYTES
        )
        piece = await loop.run_in_executor(pool, _next, pieces)
        await send(start)
        left = self._range.length
        while left:
            if piece is None:
                raise BlobMissing(f"{self._key} ended {left} bytes early")
            left -= len(piece)
            following = loop.run_in_executor(pool, _next, pieces) if left else None
            await send({"type": "http.response.body", "body": piece, "more_body": left > 0})
            piece = await following if following is not None else None


def _next(pieces: Iterator[memoryview]) -> memoryview | None:
    return next(pieces, None)
