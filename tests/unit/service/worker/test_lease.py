"""The lease of a task: of many workers one has it, and loses it only by time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardkeep_service.database.database import Database
from shardkeep_service.database.migrate import upgrade
from shardkeep_service.worker.lease import WorkerLease, new_owner
from shardkeep_service.worker.loop import Leases, PeriodicTask, Turn, TurnOver, WorkerLoop
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import ShiftedDatabase
from tests.waiting import wait_until

pytestmark = BOTH_DATABASES


@pytest.fixture
def shifted(tmp_path: Path, database_url: str | None) -> Iterator[ShiftedDatabase]:
    database = ShiftedDatabase(database_url or f"sqlite:///{tmp_path / 'x.db'}")
    upgrade(database)
    yield database
    database.close()


def lease(database: Database, owner: str, *, seconds: float = 60) -> WorkerLease:
    return WorkerLease(database, "collection", owner, seconds)


def test_one_of_many_has_it_at_a_time(shifted: ShiftedDatabase) -> None:
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda number: lease(shifted, f"owner {number}").take(), range(8)))

    assert taken.count(True) == 1


def test_a_lapsed_one_is_another_ones_and_the_first_learns_of_it(shifted: ShiftedDatabase) -> None:
    first, second = lease(shifted, "first"), lease(shifted, "second")
    assert first.take()
    assert not second.take()
    shifted.ahead_micros += 59_000_000
    assert first.renew()
    shifted.ahead_micros += 59_000_000
    assert not second.take()
    shifted.ahead_micros += 2_000_000

    assert second.take()
    assert not first.renew()
    first.end(due_after_seconds=1000)  # changes nothing: it is the second one's
    assert second.renew()


def test_a_lapsed_one_that_nobody_took_goes_on(shifted: ShiftedDatabase) -> None:
    first = lease(shifted, "first")
    assert first.take()
    shifted.ahead_micros += 3600_000_000

    assert first.renew()
    assert not lease(shifted, "second").take()


def test_a_task_is_not_due_again_before_its_time_whoever_asks(shifted: ShiftedDatabase) -> None:
    first, second = lease(shifted, "first"), lease(shifted, "second")
    assert first.take()
    first.end(due_after_seconds=100)

    assert not first.take()
    assert not second.take()
    assert second.take(also_early=True)
    second.end(due_after_seconds=100)
    shifted.ahead_micros += 101_000_000
    assert second.take()


def test_a_turn_whose_lease_was_taken_is_over_at_its_next_step(shifted: ShiftedDatabase) -> None:
    first, second = lease(shifted, "first"), lease(shifted, "second")
    assert first.take()
    turn = Turn(lease=first)
    turn.check()
    shifted.ahead_micros += 61_000_000
    assert second.take()
    turn._renewed -= 20  # a third of the lease has passed, so the next step renews

    with pytest.raises(TurnOver, match="another worker runs collection now"):
        turn.check()


def test_two_workers_share_the_tasks_and_take_over_from_one_that_ends(shifted: ShiftedDatabase) -> None:
    ran: list[str] = []
    running = threading.Lock()

    def task(name: str) -> PeriodicTask:
        def run(turn: Turn) -> None:
            assert running.acquire(blocking=False), "two at once"
            try:
                ran.append(name)
                turn.check()  # raises in the worker that ends
            finally:
                running.release()

        return PeriodicTask("task", 0.01, run)

    leases = Leases(shifted, seconds=30, poll_seconds=0.01)
    loops = [WorkerLoop([task(name)], leases=leases) for name in ("one", "two")]
    for loop in loops:
        loop.start()
    wait_until(lambda: len(ran) > 5)
    assert loops[0].stop(timeout_seconds=60)
    mark = len(ran)
    wait_until(lambda: len(ran) > mark + 3)
    assert loops[1].stop(timeout_seconds=60)

    assert set(ran[mark + 1 :]) == {"two"}


def test_a_task_that_fails_waits_its_time_and_gives_its_lease_back(shifted: ShiftedDatabase) -> None:
    failed = threading.Event()

    def fail(_: Turn) -> None:
        failed.set()
        raise RuntimeError("broken on purpose")

    loop = WorkerLoop([PeriodicTask("collection", 1000, fail)], leases=Leases(shifted, 30, 0.01))
    loop.start()
    assert failed.wait(60)
    assert loop.stop(timeout_seconds=60)

    assert not lease(shifted, "other").take()
    shifted.ahead_micros += 1001_000_000
    assert lease(shifted, "other").take()


def test_a_stopping_worker_waits_for_the_step_and_not_for_the_task(shifted: ShiftedDatabase) -> None:
    began, steps = threading.Event(), 0

    def endless(turn: Turn) -> None:
        nonlocal steps
        while True:
            steps += 1
            began.set()
            turn.wait(0.01)

    loop = WorkerLoop([PeriodicTask("collection", 1000, endless)], leases=Leases(shifted, 30, 0.01))
    loop.start()
    assert began.wait(60)

    assert loop.stop(timeout_seconds=60)
    assert lease(shifted, "other").take(), "a task that left off is due at once"


def test_no_two_workers_have_one_name(shifted: ShiftedDatabase) -> None:
    assert new_owner() != new_owner()
