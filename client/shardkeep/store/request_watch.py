"""Hearing of requests to save now: one thread a job, which waits at the service and never holds training up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shardkeep.connection.request_client import RequestClient
from shardkeep.connection.retries import DRAW
from shardkeep.errors import AttemptFenced, NotFound, ShardkeepError
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import SaveRequestInfo

_LOGGER: Final = logging.getLogger("shardkeep")
WAIT_SECONDS: Final = 25.0
TRIES_LIMIT: Final = 3
"""How often training is asked for the same request, when the saves that took it up were aborted."""
_QUICK_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
_JOIN_SECONDS: Final = 1.0


@dataclass(slots=True)
class HeardRequests:
    """Which answers of the service training has to act on: each request once, and once more after each abort."""

    number: int = 0
    """The last request heard of."""
    _aborted: str | None = None
    _tries: int = 0

    def asks_for_save(self, info: SaveRequestInfo) -> bool:
        """Whether training is to save for what the service says now. Tell it every answer, once."""
        is_new = info.number != self.number  # a lower number is new as well: the service lost its database
        if is_new:
            self.number, self._aborted, self._tries = info.number, None, 0
        if info.state != "waiting" or not (is_new or info.checkpoint_id not in (None, self._aborted)):
            return False
        self._aborted = info.checkpoint_id
        self._tries += 1
        if self._tries == TRIES_LIMIT + 1:
            _LOGGER.warning(
                "the save that %s asked for was aborted %d times; it is made with the next save that is due",
                info.requested_by,
                TRIES_LIMIT,
            )
        return self._tries <= TRIES_LIMIT


class RequestWatch:
    """Calls `ask` from a thread of its own whenever the service says that somebody wants a save, until `stop`.

    It ends by itself when the attempt is fenced, which training learns by its saves, and when the service is too old to
    know such requests. While the service cannot be reached it tries on, ever more slowly, and says so once.
    """

    def __init__(
        self,
        client: RequestClient,
        attempt_id: str,
        ask: Callable[[], object],
        *,
        wait_seconds: float = WAIT_SECONDS,
        first_pause_seconds: float = 1.0,
    ) -> None:
        self._client = client
        self._attempt_id = attempt_id
        self._ask = ask
        self._wait_seconds = wait_seconds
        self._first_pause_seconds = first_pause_seconds
        self._heard = HeardRequests()
        self._stopped = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="shardkeep-requests", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ask no more; returns at once, also while the thread waits for an answer."""
        self._stopped.set()
        self._client.transport.cut()

    def stop(self) -> None:
        """`end`, and wait for the thread; one that is still connecting is left to itself."""
        self.end()
        self._thread.join(_JOIN_SECONDS)

    @property
    def is_alive(self) -> bool:
        """Whether it still waits for requests."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                info = self._client.wait_save_request(
                    self._attempt_id, known=self._heard.number, wait_seconds=self._wait_seconds
                )
            except AttemptFenced as error:
                _LOGGER.debug("no more requests to save are waited for: %s", error)
                return
            except ShardkeepError as error:
                if self._stopped.is_set():
                    return
                if isinstance(error, NotFound) and error.code == ErrorCode.NO_SUCH_ROUTE:
                    _LOGGER.info("this service is too old to be asked for a save from outside; nothing else changes")
                    return
                self._pause_after(error)
                continue
            self._note_success()
            if self._heard.asks_for_save(info):
                _LOGGER.info("%s asked for a save: the next step makes it", info.requested_by)
                self._ask()
            elif time.monotonic() - began < min(_QUICK_SECONDS, self._wait_seconds):
                self._stopped.wait(_QUICK_SECONDS)  # something between does not let requests wait

    def _pause_after(self, error: ShardkeepError) -> None:
        if self._failures == 0:
            _LOGGER.info("requests to save cannot be heard of now, trying on: %s", error)
        ceiling = min(_LONGEST_PAUSE_SECONDS, self._first_pause_seconds * 2.0 ** min(self._failures, 16))
        self._failures += 1
        self._stopped.wait(ceiling * (0.5 + DRAW() / 2))

    def _note_success(self) -> None:
        if self._failures:
            _LOGGER.info("requests to save are heard of again")
        self._failures = 0
