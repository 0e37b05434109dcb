"""When to try again: full jitter inside a total window. What is retryable is decided in `problems`."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shardkeep.connection.problems import DAMAGE_CODES, is_worth_retrying
from shardkeep.errors import ConnectionFailed, ServiceError, ShardkeepError

_log = logging.getLogger("shardkeep.connection")
DRAW: Final = random.SystemRandom().random
"""Jitter from the system: what threads of ours drew from Python's generator would shift the training's."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long one request may go on failing before its error is raised.

    `window_seconds` counts from the first failure in a row, so a slow upload does not use it up; the default outlives
    a restart of the service. `unanswered_seconds` is the window of connections that fail, where it is another.
    """

    window_seconds: float = 120.0
    unanswered_seconds: float | None = None
    first_delay_seconds: float = 0.1
    longest_delay_seconds: float = 5.0
    damage_tries: int = 5


class Retries:
    """The failures in a row of one request."""

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        closed: threading.Event,
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = DRAW,
    ) -> None:
        self._policy = policy
        self._closed = closed
        self._stop = stop
        self._clock = clock
        self._draw = draw
        self._first_failure: float | None = None
        self._failures = 0
        self._damaged = 0
        self.tries = 1

    def progressed(self) -> None:
        """Some bytes arrived: what failed before no longer counts against the window."""
        self._first_failure = None
        self._failures = 0

    def pause_after(self, failure: ShardkeepError, *, retry_after_seconds: float | None = None) -> None:
        """Sleep before the next try, or raise `failure` when there must not be one."""
        if not is_worth_retrying(failure) or self._too_often_damaged(failure):
            raise failure
        window_seconds = self._window_of(failure)
        delay = self._next_delay(retry_after_seconds or 0.0, window_seconds)
        if delay is None:
            raise self._gave_up(failure, window_seconds) from failure
        _log.log(logging.WARNING if self._failures == 3 else logging.DEBUG, "trying again: %s", failure)
        self._sleep(delay, failure)
        self.tries += 1

    def _sleep(self, seconds: float, failure: ShardkeepError) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._closed.wait(left if self._stop is None else min(left, 0.1)):
                raise ConnectionFailed(
                    f"The client was closed while a request was being retried ({failure})"
                ) from failure
            if self._stop is not None and self._stop.is_set():
                raise failure

    def _too_often_damaged(self, failure: ShardkeepError) -> bool:
        if isinstance(failure, ServiceError) and failure.code in DAMAGE_CODES:
            self._damaged += 1
        return self._damaged >= self._policy.damage_tries

    def _window_of(self, failure: ShardkeepError) -> float:
        unanswered_seconds = self._policy.unanswered_seconds
        if unanswered_seconds is not None and isinstance(failure, ConnectionFailed):
            return unanswered_seconds
        return self._policy.window_seconds

    def _next_delay(self, at_least_seconds: float, window_seconds: float) -> float | None:
        now = self._clock()
        if self._first_failure is None:
            self._first_failure = now
        left = self._first_failure + window_seconds - now
        ceiling = min(
            self._policy.longest_delay_seconds, self._policy.first_delay_seconds * 2.0 ** min(self._failures, 16)
        )
        self._failures += 1
        delay = at_least_seconds + ceiling * self._draw()
        if left <= 0 or at_least_seconds > left:
            return None
        return min(delay, left)

    def _gave_up(self, failure: ShardkeepError, window_seconds: float) -> ShardkeepError:
        if isinstance(failure, ConnectionFailed):
            return ConnectionFailed(f"{failure}; gave up after {self.tries} tries in {window_seconds:g} s")
        return failure
