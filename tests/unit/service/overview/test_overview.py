"""The overview: sums of what a token may see, and saves over time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import update

from shardkeep.protocol import routes
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.scopes import Scope
from shardkeep_service.chunks.models import Chunk, Verification
from shardkeep_service.garbage_collection.collector import collect
from shardkeep_service.integrity.findings import note_finding
from shardkeep_service.integrity.models import Damage, ObjectKind
from shardkeep_service.overview import service, totals
from shardkeep_service.overview.service import REMEMBERED_SECONDS, Overviews
from shardkeep_service.worker.lease import WorkerLease
from shardkeep_service.worker.loop import Turn
from tests.unit.service.access.holders import Holder, first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService
from tests.unit.service.rows import add_place
from tests.unit.service.training import Training
from tests.waiting import wait_until

pytestmark = BOTH_DATABASES
HOUR_SECONDS = 3_600
LONG_SECONDS = 3_000.0


@pytest.fixture
def remembered_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """An overview is remembered for LONG_SECONDS: longer than any machine takes for a test."""
    monkeypatch.setattr(service, "REMEMBERED_SECONDS", LONG_SECONDS)


def overview(asker: LocalService | Holder, **query: Any) -> dict[str, Any]:
    return asker.ask("GET", routes.OVERVIEW, query=query)


def listed(local: LocalService, project: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = local.ask("GET", routes.CHECKPOINTS, query={"project": project})["items"]
    return items


def save_some(local: LocalService, project: str) -> Training:
    """Two committed, one deleted, one aborted and one open checkpoint."""
    training = Training(local, project=project)
    attempt = training.start()
    saved = [training.save(attempt, save=save, step=save) for save in (1, 2, 3)]
    training.change("DELETE", routes.CHECKPOINT, saved[0])
    given_up = training.open_all(attempt, save=4, step=4)
    local.ask("POST", routes.path(routes.ABORT, checkpoint=given_up), {"rank": 0, "reason": "enough"})
    training.open_all(attempt, save=5, step=5)
    return training


def test_totals_are_those_of_the_lists(local: LocalService) -> None:
    save_some(local, "mine")
    save_some(local, "theirs")
    Training(local, project="theirs", run="untouched")

    found = overview(local)

    committed = [
        item for project in ("mine", "theirs") for item in listed(local, project) if item["state"] == "committed"
    ]
    projects = local.ask("GET", routes.PROJECTS)["items"]
    assert (found["projects"], found["runs"]) == (2, 3)
    assert (found["committed_checkpoints"], found["open_checkpoints"]) == (len(committed), 2) == (4, 2)
    assert (found["aborted_checkpoints"], found["deleted_checkpoints"]) == (2, 2)
    assert found["raw_bytes"] == sum(item["raw_bytes"] for item in committed) > 0
    assert found["named_bytes"] == sum(item["stored_bytes"] for item in committed)
    assert found["stored_bytes"] == sum(project["stored_bytes"] for project in projects) > 0
    assert (found["declared_bytes"], found["quarantined_checkpoints"], found["open_findings"]) == (0, 0, 0)
    assert found["outbox_entries"] > 0


def test_one_project_is_summed_up_alone_and_a_bound_token_sums_up_its_own(local: LocalService) -> None:
    save_some(local, "mine")
    save_some(local, "theirs")
    bound = Holder(local, local.new_token(Scope.READ, project="mine"))

    whole, named, own = overview(local), overview(local, project="mine"), overview(bound)

    sums = [name for name, value in whole.items() if isinstance(value, int) and name not in _OF_THE_SERVICE]
    assert len(sums) == 9
    assert {name: own[name] for name in sums} == {name: named[name] for name in sums}
    assert all(own[name] <= whole[name] for name in sums)
    assert (own["projects"], own["committed_checkpoints"]) == (1, 2)
    assert (own["collection"], own["workers"], own["outbox_entries"]) == (None, [], None)
    bound.refused("unknown_project", "GET", routes.OVERVIEW, query={"project": "theirs"})
    first_admin(local).mint(project="mine").refused("scope_too_narrow", "GET", routes.OVERVIEW)


_OF_THE_SERVICE = ("stretch_seconds", "outbox_entries", "quarantined_checkpoints", "open_findings", "declared_bytes")


def to_half_past(local: LocalService) -> None:
    """Moves the clock on to the middle of an hour, so that what happens next is all of the same one."""
    with local.database.read() as session:
        past_seconds = local.database.now(session) / 1e6 % HOUR_SECONDS
    local.advance(1.5 * HOUR_SECONDS - past_seconds)


def test_saves_are_told_by_when_they_were_committed_or_given_up(local: LocalService, training: Training) -> None:
    to_half_past(local)
    attempt = training.start()
    saved = [training.info(training.save(attempt, save=1, step=1))]
    local.advance(2 * HOUR_SECONDS)
    saved.append(training.info(training.save(attempt, save=2, step=2)))
    training.change("DELETE", routes.CHECKPOINT, saved[1]["id"])
    given_up = training.open_all(attempt, save=3, step=3)
    local.ask("POST", routes.path(routes.ABORT, checkpoint=given_up), {"rank": 0, "reason": "enough"})

    found = overview(local)
    stretches = found["saves"]

    assert found["stretch_seconds"] == HOUR_SECONDS
    assert len(stretches) == 169
    starts = [datetime.fromisoformat(stretch["start"]) for stretch in stretches]
    assert {(later - earlier).total_seconds() for earlier, later in pairwise(starts)} == {3_600}
    assert [stretch["committed"] for stretch in stretches[-3:]] == [1, 0, 1]
    assert [stretch["aborted"] for stretch in stretches[-3:]] == [0, 0, 1]
    assert [stretch["new_bytes"] for stretch in stretches[-3::2]] == [info["new_bytes"] for info in saved]
    assert [stretch["raw_bytes"] for stretch in stretches[-3::2]] == [info["raw_bytes"] for info in saved]
    assert sum(stretch["committed"] + stretch["aborted"] for stretch in stretches[:-3]) == 0
    assert sum(stretch["committed"] for stretch in overview(local, window_hours=1)["saves"]) == 1


@pytest.mark.parametrize("hours", [0, 8_761, -1])
def test_a_window_that_is_no_window_is_refused(local: LocalService, hours: int) -> None:
    local.refused("malformed_request", "GET", routes.OVERVIEW, query={"window_hours": hours})


def test_damage_and_what_nobody_has_compared_yet_are_counted(local: LocalService, training: Training) -> None:
    checkpoint = training.info(training.save(training.start(), save=1, step=1))
    project_id = local.ask("GET", training.path(routes.PROJECT))["id"]
    with local.database.write() as session:
        session.execute(update(Chunk).values(verification=Verification.DECLARED.value))
        note_finding(
            session, project_id=project_id, checkpoint_id=checkpoint["id"], kind=ObjectKind.INDEX,
            damage=Damage.LOST, object_key="index", digest=None, detail="it is gone",
        )  # fmt: skip

    found = overview(local)

    assert found["open_findings"] == 1
    assert found["declared_bytes"] == found["stored_bytes"] > 0


def test_collection_and_who_works_are_told(local: LocalService) -> None:
    collect(local.context, Turn())
    lease = WorkerLease(local.database, "scrub", "somebody", 60)
    lease.take()

    found = overview(local)

    assert found["collection"]["passes"] >= 1
    assert found["collection"]["running"] is False
    assert found["collection"]["ended_at"] is not None
    [worker] = [worker for worker in found["workers"] if worker["task"] == "scrub"]
    assert worker["holder"] == "somebody"
    assert datetime.fromisoformat(worker["lease_until"]) > datetime.fromisoformat(found["now"])

    lease.end(due_after_seconds=60)
    local.advance(REMEMBERED_SECONDS + 1)
    [worker] = [worker for worker in overview(local)["workers"] if worker["task"] == "scrub"]
    assert (worker["holder"], worker["lease_until"]) == (None, None)


@pytest.mark.usefixtures("remembered_long")
def test_it_is_remembered_for_some_seconds_for_each_reach_alone(local: LocalService) -> None:
    add_place(local.database, project="mine")
    add_place(local.database, project="theirs")
    bound = Holder(local, local.new_token(Scope.READ, project="mine"))
    assert [overview(asker)["runs"] for asker in (local, bound)] == [2, 1]
    add_place(local.database, project="mine", run="later")

    assert [overview(asker)["runs"] for asker in (local, bound)] == [2, 1]
    assert overview(local, window_hours=24)["runs"] == 3
    local.advance(LONG_SECONDS + 1)
    assert [overview(asker)["runs"] for asker in (local, bound)] == [3, 2]


SEES_ALL = Principal("tok_1", "all", Scope.READ, None)


@pytest.mark.usefixtures("remembered_long")
def test_of_many_who_ask_at_once_one_counts_however_long_it_takes(
    local: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    overviews, asked, counted = Overviews(local.context), threading.Semaphore(0), []
    count_projects = totals.count_projects

    def count_slowly(*arguments: Any) -> int:
        counted.append(1)
        for _ in range(5 if len(counted) == 1 else 0):
            asked.acquire(timeout=60)
        local.advance(LONG_SECONDS + 1)
        return count_projects(*arguments)

    def ask() -> Any:
        asked.release()
        return overviews.overview(SEES_ALL, None, window_hours=1)

    monkeypatch.setattr(totals, "count_projects", count_slowly)
    with ThreadPoolExecutor(5) as threads:
        found = [asking.result(60) for asking in [threads.submit(ask) for _ in range(5)]]

    assert len(counted) == 1
    assert all(one is found[0] for one in found)


def test_who_asks_while_the_next_one_is_counted_gets_the_last_at_once(
    local: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    overviews, counting, go_on = Overviews(local.context), threading.Event(), threading.Event()
    first = overviews.overview(SEES_ALL, None, window_hours=1)
    local.advance(REMEMBERED_SECONDS + 1)

    def count_slowly(*_: Any) -> int:
        counting.set()
        assert go_on.wait(60)
        return 7

    monkeypatch.setattr(totals, "count_projects", count_slowly)
    with ThreadPoolExecutor(2) as threads:
        next_one = threads.submit(overviews.overview, SEES_ALL, None, window_hours=1)
        assert counting.wait(60)
        meanwhile = threads.submit(overviews.overview, SEES_ALL, None, window_hours=1)
        try:
            wait_until(meanwhile.done, seconds=40)
        finally:
            go_on.set()
        assert meanwhile.result() is first
        assert next_one.result(60).projects == 7
    assert overviews.overview(SEES_ALL, None, window_hours=1).projects == 7
