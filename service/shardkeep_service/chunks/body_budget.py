"""The body budget: how many bytes of request bodies the process holds at one time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.errors import Refusal

_RETRY_AFTER_SECONDS = 2.0


class BodyBudget:
    """Shares of a number of bytes, given in the order asked for. Used from one event loop."""

    def __init__(self, limit_bytes: int, *, wait_seconds: float) -> None:
        self._free = self._limit = limit_bytes
        self._wait_seconds = wait_seconds
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def used_bytes(self) -> int:
        """Bytes given out now."""
        return self._limit - self._free

    @contextlib.asynccontextmanager
    async def share(self, size_bytes: int) -> AsyncIterator[None]:
        """Holds a share; refuses `busy` when none became free in time. A body above the whole budget gets all of it."""
        size_bytes = min(size_bytes, self._limit)
        await self._acquire(size_bytes)
        try:
            yield
        finally:
            self._free += size_bytes
            self._serve_waiting()

    async def _acquire(self, size_bytes: int) -> None:
        if not self._waiting and size_bytes <= self._free:
            self._free -= size_bytes
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size_bytes, granted)
        self._waiting.append(entry)
        try:
            await asyncio.wait_for(asyncio.shield(granted), self._wait_seconds)
        except TimeoutError:
            self._withdraw(entry)
            raise Refusal(
                ErrorCode.BUSY,
                "too many bytes are being uploaded at this moment; retry",
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            ) from None
        except asyncio.CancelledError:
            self._withdraw(entry)
            raise

    def _withdraw(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        if entry[1].done():  # granted in the very moment of giving up
            self._free += entry[0]
        else:
            self._waiting.remove(entry)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            size_bytes, granted = self._waiting.popleft()
            self._free -= size_bytes
            granted.set_result(None)
