"""Periodic tasks: each goes on whatever another does, and all end when told."""

from __future__ import annotations

import threading

from shardkeep_service.worker.loop import PeriodicTask, Turn, WorkerLoop
from tests.waiting import wait_until


def test_a_failing_task_comes_again_and_does_not_stop_the_others() -> None:
    counts = {"failing": 0, "sound": 0}

    def fail(_: Turn) -> None:
        counts["failing"] += 1
        raise RuntimeError("broken on purpose")

    def succeed(_: Turn) -> None:
        counts["sound"] += 1

    loop = WorkerLoop([PeriodicTask("failing", 0.001, fail), PeriodicTask("sound", 0.001, succeed)])
    loop.start()
    wait_until(lambda: min(counts.values()) >= 3)
    loop.stop()


def test_a_slow_task_delays_no_other_and_is_waited_for() -> None:
    release, ran, ended = threading.Event(), threading.Event(), threading.Event()

    def wait(_: Turn) -> None:
        release.wait(60)
        ended.set()

    loop = WorkerLoop([PeriodicTask("slow", 100, wait), PeriodicTask("quick", 100, lambda _: ran.set())])
    loop.start()
    assert ran.wait(60)
    release.set()
    assert loop.stop(timeout_seconds=60)
    assert ended.is_set()
    assert not {thread.name for thread in threading.enumerate()} & {"worker-slow", "worker-quick"}
