"""What every endpoint is given: the database, the blob store, the settings, the thread pools and the board."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from fastapi import Request

from shardkeep_service.blob_store.presigner import Presigner, StoreAbilities
from shardkeep_service.drain import Drain
from shardkeep_service.observability.metrics import Metrics

if TYPE_CHECKING:
    from shardkeep_service.blob_store.blob_store import BlobStore
    from shardkeep_service.database.database import Database
    from shardkeep_service.settings import Settings


_KEYS_LIMIT: Final = 100_000


class _AsyncWaiter:
    """One coroutine that waits on the board, woken from any thread while its loop runs."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        self._loop.call_soon_threadsafe(self.event.set)


class StateBoard:
    """Wakes the long polls of this process when what they wait for changed: a checkpoint, an inventory, a save request.

    Only a hint: other replicas change the database too, so waiters look again every few seconds whatever it says.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._generation: dict[str, int] = {}
        """The count at the last notification of each key, oldest first; bounded; a forgotten key only looks changed."""
        self._async_waiters: dict[str, set[_AsyncWaiter]] = {}

    def notify(self, key: str) -> None:
        """Says that what `key` names has changed. Call after the commit. A checkpoint's key is its id."""
        with self._lock:
            self._count += 1
            self._generation.pop(key, None)
            self._generation[key] = self._count
            if len(self._generation) > _KEYS_LIMIT:
                del self._generation[next(iter(self._generation))]
            for waiter in self._async_waiters.get(key, ()):
                waiter.wake()

    def generation(self, key: str) -> int:
        """Grows with each notification of `key`; read it before reading the database."""
        with self._lock:
            return self._generation.get(key, 0)

    async def changed(self, key: str, *, since: int, timeout_seconds: float) -> None:
        """Returns when `key` was notified after generation `since`, or after the time. Waiting holds no thread."""
        waiter = _AsyncWaiter()
        with self._lock:
            if self._generation.get(key, 0) != since:
                return
            self._async_waiters.setdefault(key, set()).add(waiter)
        try:
            async with asyncio.timeout(timeout_seconds):
                await waiter.event.wait()
        except TimeoutError:
            return
        finally:
            with self._lock:
                waiters = self._async_waiters[key]
                waiters.discard(waiter)
                if not waiters:
                    del self._async_waiters[key]


class ThreadPools:
    """Separate pools, so that slow storage never starves hashing, and neither starves the database endpoints."""

    def __init__(self, *, storage_threads: int = 16, hashing_threads: int = 4) -> None:
        self.storage = ThreadPoolExecutor(storage_threads, thread_name_prefix="storage")
        self.hashing = ThreadPoolExecutor(hashing_threads, thread_name_prefix="hashing")

    def close(self) -> None:
        """Waits for running work and starts none of what is queued."""
        for pool in (self.hashing, self.storage):
            pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """Made once by `main.create_app` and handed to endpoints by `get_context`."""

    database: Database
    blob_store: BlobStore
    settings: Settings
    board: StateBoard = field(default_factory=StateBoard)
    pools: ThreadPools = field(default_factory=ThreadPools)
    drain: Drain = field(default_factory=Drain)
    metrics: Metrics = field(default_factory=Metrics)
    presigner: Presigner | None = None
    """None where clients cannot reach the store themselves."""
    find_abilities: Callable[[], StoreAbilities] = StoreAbilities
    """Asks the store at the first call and remembers; `BlobStoreUnavailable` while it does not answer."""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When this process made it."""

    @property
    def abilities(self) -> StoreAbilities:
        """What the object store really does. The first use may ask the store: keep it off the event loop."""
        return self.find_abilities()


def context_of(request: Request) -> ServiceContext:
    """The context of the application that serves this request."""
    context = request.app.state.context
    assert isinstance(context, ServiceContext)
    return context


async def get_context(request: Request) -> ServiceContext:
    """FastAPI dependency: the context of this application. Async, as all dependencies are that wait for nothing: others
    go to a thread and back, which costs more than many a request's own work.
    """
    return context_of(request)
