"""Attempts: begun once per launch and ordinal, and the fence only moves forward."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from shardkeep.protocol import routes
from shardkeep.protocol.identifiers import new_launch_id
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def test_E164_every_rank_and_every_retry_of_a_launch_gets_the_same_attempt(training: Training) -> None:
    launch = new_launch_id()

    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda _: training.begin(4, launch_id=launch), range(24)))

    assert len(ids) == 1
    assert training.service.ask("GET", training.path(routes.RUN))["attempts"] == 1


def test_a_new_attempt_fences_the_one_before(training: Training) -> None:
    old = training.start()
    new = training.begin()

    problem = training.service.refused(
        "attempt_fenced",
        "POST",
        routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=old),
        {"save": 1, "step": 1, "rank": 0, "world_size": 2},
    )

    assert new in problem["detail"]
    assert training.service.ask("GET", routes.path(routes.ATTEMPT, attempt=old))["current"] is False
    assert training.service.ask("GET", routes.path(routes.ATTEMPT, attempt=new))["current"] is True


def test_beginning_a_superseded_attempt_again_does_not_bring_it_back(training: Training) -> None:
    launch = new_launch_id()
    old = training.begin(launch_id=launch)
    new = training.begin()

    again = training.begin(launch_id=launch)

    assert again == old
    assert training.service.ask("GET", training.path(routes.RUN))["current_attempt_id"] == new


def test_a_lower_ordinal_that_arrives_late_never_becomes_current(training: Training) -> None:
    launch = new_launch_id()
    rollback = training.begin(launch_id=launch, ordinal=1)

    late = training.begin(launch_id=launch, ordinal=0)

    assert training.service.ask("GET", training.path(routes.RUN))["current_attempt_id"] == rollback
    training.service.refused("attempt_fenced", "POST", routes.path(routes.RESUME, attempt=late), {})


def test_another_world_size_in_one_launch_names_both(training: Training) -> None:
    launch = new_launch_id()
    training.begin(2, launch_id=launch)

    body = {"launch_id": launch, "ordinal": 0, "world_size": 3}
    problem = training.service.refused("world_size_disagrees", "POST", training.path(routes.RUN_ATTEMPTS), body)

    assert "2" in problem["detail"]
    assert "3" in problem["detail"]


def test_open_checkpoints_of_older_attempts_are_aborted_as_superseded(training: Training) -> None:
    open_one = training.open_all(training.start(), save=1, step=10)

    new = training.begin()

    state = training.service.ask("GET", routes.path(routes.STATE, checkpoint=open_one))
    assert (state["state"], state["abort"]["code"]) == ("aborted", "superseded")
    assert new in state["abort"]["reason"]


@pytest.mark.parametrize("template", [routes.ATTEMPT])
def test_an_unknown_attempt_is_404(training: Training, template: str) -> None:
    unknown = "att_" + "0" * 32
    service = training.service

    service.refused("unknown_attempt", "GET", routes.path(template, attempt=unknown))
    service.refused("unknown_attempt", "POST", routes.path(routes.RESUME, attempt=unknown), {})
    body = {"save": 1, "step": 1, "rank": 0, "world_size": 1}
    service.refused("unknown_attempt", "POST", routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=unknown), body)


def test_attempts_are_listed_newest_first(training: Training) -> None:
    begun = [training.begin() for _ in range(3)]
    path = training.path(routes.RUN_ATTEMPTS)

    first = training.service.ask("GET", path, query={"limit": 2})
    rest = training.service.ask("GET", path, query={"cursor": first["next_cursor"]})

    assert [item["id"] for item in first["items"] + rest["items"]] == begun[::-1]


def test_an_attempt_says_what_it_resumed_from_wherever_it_is_shown(training: Training) -> None:
    launch = new_launch_id()
    first = training.start()
    kept = training.save(first, save=1, step=10)
    training.save(first, save=2, step=20)
    second = training.begin(launch_id=launch)
    undecided = training.service.ask("GET", routes.path(routes.ATTEMPT, attempt=second))
    training.decide(second, checkpoint_id=kept)

    listed = training.service.ask("GET", training.path(routes.RUN_ATTEMPTS))["items"]
    shown = [training.service.ask("GET", routes.path(routes.ATTEMPT, attempt=attempt)) for attempt in (second, first)]
    body = {"launch_id": launch, "ordinal": 0, "world_size": 2}
    again = training.service.ask("POST", training.path(routes.RUN_ATTEMPTS), body)

    resumed = [(attempt["number"], attempt["resumed_step"], attempt["resumed_attempt"]) for attempt in listed]
    assert resumed == [(2, 10, 1), (1, None, None)]
    assert shown == listed
    assert again == listed[0]
    assert (undecided["resumed_step"], undecided["resumed_attempt"]) == (None, None)
