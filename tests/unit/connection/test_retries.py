"""Retries stay inside their window."""

from __future__ import annotations

import random
import threading
import time

import pytest

from shardkeep.connection.retries import Retries, RetryPolicy
from shardkeep.errors import ConnectionFailed, InvalidRequest, ServiceUnavailable

BROKEN = ConnectionFailed("GET /x: broken")


def unavailable(code: str = "busy") -> ServiceUnavailable:
    return ServiceUnavailable("busy", code=code, status=503, retryable=True)


def retries(policy: RetryPolicy, now: list[float], stop: threading.Event | None = None) -> Retries:
    return Retries(policy, closed=threading.Event(), stop=stop, clock=lambda: now[0], draw=lambda: 0.0)


def test_what_is_not_retryable_is_raised_at_once() -> None:
    error = InvalidRequest("no", code="malformed_request", status=400)
    with pytest.raises(InvalidRequest):
        retries(RetryPolicy(), [0.0]).pause_after(error)


def test_the_window_counts_from_the_first_failure_in_a_row() -> None:
    now = [1000.0]
    waiting = retries(RetryPolicy(window_seconds=10), now)
    waiting.pause_after(BROKEN)
    now[0] += 9.9
    waiting.pause_after(BROKEN)
    waiting.progressed()
    now[0] += 9.9
    waiting.pause_after(BROKEN)
    now[0] += 10.1
    with pytest.raises(ConnectionFailed, match="gave up after 4 tries in 10 s"):
        waiting.pause_after(BROKEN)


def test_a_retry_after_beyond_the_window_is_not_waited_for() -> None:
    with pytest.raises(ServiceUnavailable):
        retries(RetryPolicy(window_seconds=5), [0.0]).pause_after(unavailable(), retry_after_seconds=6)


def test_retry_after_is_the_least_pause() -> None:
    started = time.monotonic()
    retries(RetryPolicy(window_seconds=5), [0.0]).pause_after(unavailable(), retry_after_seconds=0.2)
    assert time.monotonic() - started >= 0.19


def test_damaged_bytes_are_sent_a_few_times_only() -> None:
    waiting = retries(RetryPolicy(damage_tries=3), [0.0])
    damaged = unavailable("digest_mismatch")
    waiting.pause_after(damaged)
    waiting.pause_after(damaged)
    with pytest.raises(ServiceUnavailable):
        waiting.pause_after(damaged)


@pytest.mark.parametrize("which", ["stop", "closed"])
def test_stopping_and_closing_end_a_pause(which: str) -> None:
    events = {"stop": threading.Event(), "closed": threading.Event()}
    waiting = Retries(
        RetryPolicy(first_delay_seconds=100, longest_delay_seconds=100),
        draw=lambda: 1.0,
        closed=events["closed"],
        stop=events["stop"],
    )
    threading.Timer(0.1, events[which].set).start()
    started = time.monotonic()
    with pytest.raises(ConnectionFailed):
        waiting.pause_after(BROKEN)
    assert time.monotonic() - started < 60


def test_waiting_between_tries_draws_nothing_from_the_generator_that_training_uses() -> None:
    before = random.getstate()
    waiting = Retries(RetryPolicy(first_delay_seconds=0.001), closed=threading.Event())
    waiting.pause_after(BROKEN)
    waiting.pause_after(BROKEN)
    assert random.getstate() == before
