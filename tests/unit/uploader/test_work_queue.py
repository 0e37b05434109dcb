"""Threads that run tasks."""

from __future__ import annotations

import threading

from shardkeep.uploader.work_queue import Outstanding, WorkQueue


def test_tasks_run_and_errors_are_handed_over() -> None:
    errors: list[Exception] = []
    done = Outstanding()
    queue = WorkQueue("test", 2, on_error=errors.append)
    ran = []

    def task(number: int) -> None:
        ran.append(number)
        done.end()
        if number == 3:
            raise ValueError("three")

    for number in range(10):
        done.begin()
        queue.put(lambda number=number: task(number))  # type: ignore[misc]
    assert done.wait(60)
    queue.close()
    queue.join()
    assert sorted(ran) == list(range(10))
    assert [str(error) for error in errors] == ["three"]


def test_urgent_tasks_go_first_and_closing_drops_the_rest() -> None:
    gate, order = threading.Event(), []
    queue = WorkQueue("test", 1, on_error=lambda _: None)
    started = threading.Event()

    def block() -> None:
        started.set()
        gate.wait()
        order.append("blocker")

    def urge() -> None:
        order.append("urgent")
        queue.close()

    queue.put(block)
    started.wait()
    queue.put(lambda: order.append("later"))
    queue.put(urge, first=True)
    gate.set()
    queue.join()
    assert order == ["blocker", "urgent"]
    queue.put(lambda: order.append("never"))
