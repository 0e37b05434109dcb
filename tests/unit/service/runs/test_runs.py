"""Runs: made by their first use, listed with what is last in them."""

from __future__ import annotations

import pytest

from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def test_only_the_request_that_made_the_run_says_created(local: LocalService) -> None:
    path = routes.path(routes.RUN, project="speech", run="base")

    first = local.ask("PUT", path)
    again = local.ask("PUT", path)

    assert (first["created"], again["created"]) == (True, False)
    assert first["id"] == again["id"]
    assert local.ask("GET", path)["created"] is False


def test_a_write_token_makes_runs_and_no_projects(local: LocalService) -> None:
    headers = {"authorization": f"Bearer {local.new_token(Scope.WRITE)}"}
    path = routes.path(routes.RUN, project="speech", run="base")

    local.refused("unknown_project", "PUT", path, headers=headers)
    local.ask("POST", routes.PROJECTS, {"name": "speech"})

    assert local.ask("PUT", path, headers=headers)["created"] is True


def test_E165_names_that_are_empty_or_have_slashes_are_clear_refusals(local: LocalService) -> None:
    for path in ("/v1/projects//runs/base", "/v1/projects/speech/runs/", "/v1/projects/speech//runs/base"):
        local.refused("no_such_route", "PUT", path)
    for name in ("%2F", "..", "a%2Fb", "%20"):
        answer = local.send("PUT", f"/v1/projects/speech/runs/{name}")
        assert answer.status in (404, 422), answer.content


def test_an_unknown_run_is_404(local: LocalService) -> None:
    local.ask("POST", routes.PROJECTS, {"name": "speech"})

    for template in (routes.RUN, routes.LATEST, routes.RUN_CHECKPOINTS, routes.RUN_ATTEMPTS):
        local.refused("unknown_run", "GET", routes.path(template, project="speech", run="none"))


def test_the_list_of_runs_shows_what_is_last_in_each(local: LocalService) -> None:
    kept = {}
    for run in ("a", "b"):
        training = Training(local, run=run)
        attempt = training.start()
        training.save(attempt, save=1, step=1)
        kept[run] = training.save(attempt, save=2, step=2)
    Training(local, run="empty")

    listed = local.ask("GET", routes.path(routes.RUNS, project="project"))["items"]

    assert [item["name"] for item in listed] == ["a", "b", "empty"]
    assert [item["latest"]["id"] if item["latest"] else None for item in listed] == [kept["a"], kept["b"], None]
    assert [item["committed_checkpoints"] for item in listed] == [2, 2, 0]


def test_E171_latest_is_each_runs_own(local: LocalService) -> None:
    first, second = Training(local, run="first"), Training(local, run="second")
    attempts = first.start(), second.start()
    saved = first.save(attempts[0], save=1, step=5), second.save(attempts[1], save=1, step=5)

    assert (first.latest_id(), second.latest_id()) == saved


@pytest.mark.parametrize(
    ("query", "steps"),
    [
        ({}, [4, 3, 2, 1]),
        ({"step": 2}, [2]),
        ({"step_min": 2, "step_max": 3}, [3, 2]),
        ({"state": "aborted"}, [4]),
        ({"state": "committed"}, [3, 2, 1]),
        ({"pinned": "true"}, [1]),
        ({"pinned": "false"}, [4, 3, 2]),
        ({"on_line": "true"}, [3, 2, 1]),
        ({"on_line": "false"}, [4]),
        ({"attempt": "att_" + "0" * 32}, []),
    ],
)
def test_checkpoints_are_listed_newest_first_with_filters(
    training: Training, query: dict[str, str], steps: list[int]
) -> None:
    attempt = training.start()
    first = training.save(attempt, save=1, step=1)
    training.save(attempt, save=2, step=2)
    training.save(attempt, save=3, step=3)
    aborted = training.open_all(attempt, save=4, step=4)
    training.change("PUT", routes.PIN, first)
    training.service.ask("POST", routes.path(routes.ABORT, checkpoint=aborted), {"rank": 0, "reason": "test"})

    listed = training.service.ask("GET", training.path(routes.RUN_CHECKPOINTS), query=query)

    assert [item["step"] for item in listed["items"]] == steps


def test_pages_of_checkpoints_stay_in_order_while_new_ones_are_opened(training: Training) -> None:
    attempt = training.start()
    for save in range(5):
        training.open(attempt, save=save, step=save, rank=0)
    path = training.path(routes.RUN_CHECKPOINTS)

    first = training.service.ask("GET", path, query={"limit": 2})
    training.open(attempt, save=9, step=9, rank=0)
    rest = training.service.ask("GET", path, query={"limit": 200, "cursor": first["next_cursor"]})

    assert [item["step"] for item in first["items"] + rest["items"]] == [4, 3, 2, 1, 0]
    other = {"cursor": first["next_cursor"], "step": 3}
    training.service.refused("invalid_cursor", "GET", path, query=other)


def test_checkpoints_of_all_runs_are_listed_for_the_tokens_projects_only(local: LocalService) -> None:
    mine, other = Training(local, project="mine"), Training(local, project="other")
    saved = mine.save(mine.start(), save=1, step=1)
    other.save(other.start(), save=1, step=1)
    headers = {"authorization": f"Bearer {local.new_token(Scope.READ, project='mine')}"}

    listed = local.ask("GET", routes.CHECKPOINTS, headers=headers)["items"]

    assert [item["id"] for item in listed] == [saved]
    assert len(local.ask("GET", routes.CHECKPOINTS)["items"]) == 2
