"""Long polls: however many wait for one thing, the database is asked now and then and after each change."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from starlette.concurrency import run_in_threadpool

from shardkeep_service.service_context import StateBoard

Seen = TypeVar("Seen")

MAX_AGE_SECONDS: Final = 1.0
"""Other replicas change the database without telling this one's board; so nobody waits on an older look."""
KEYS_LIMIT: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Look(Generic[Seen]):
    seen: Seen
    generation: int
    taken_at: float


class SharedLook(Generic[Seen]):
    """Looks of one kind, by board key. `load` asks the database; it may refuse. Used from one event loop."""

    def __init__(
        self, board: StateBoard, load: Callable[[str], Seen], *, max_age_seconds: float = MAX_AGE_SECONDS
    ) -> None:
        self._board = board
        self._load = load
        self._max_age_seconds = max_age_seconds
        self._looks: OrderedDict[str, _Look[Seen]] = OrderedDict()
        self._loading: dict[str, asyncio.Lock] = {}

    async def wait_for(self, key: str, has_news: Callable[[Seen], bool], *, wait_seconds: float) -> Seen:
        """The first look that has news, or the last one when the time is over."""
        deadline = time.monotonic() + wait_seconds
        look = await self._look(key)
        while not has_news(look.seen):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            timeout = min(left, self._max_age_seconds)
            await self._board.changed(key, since=look.generation, timeout_seconds=timeout)
            look = await self._look(key)
        return look.seen

    async def _look(self, key: str) -> _Look[Seen]:
        fresh = self._fresh(key)
        if fresh is not None:
            return fresh
        lock = self._loading.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                return self._fresh(key) or await self._load_now(key)
        finally:
            if not lock.locked():
                self._loading.pop(key, None)

    async def _load_now(self, key: str) -> _Look[Seen]:
        generation = self._board.generation(key)
        look = _Look(await run_in_threadpool(self._load, key), generation, time.monotonic())
        self._looks[key] = look
        self._looks.move_to_end(key)
        while len(self._looks) > KEYS_LIMIT:
            self._looks.popitem(last=False)
        return look

    def _fresh(self, key: str) -> _Look[Seen] | None:
        look = self._looks.get(key)
        if look is None or look.generation != self._board.generation(key):
            return None
        return look if time.monotonic() - look.taken_at < self._max_age_seconds else None
