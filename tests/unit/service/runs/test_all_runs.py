"""The list of all runs: what it shows, how it is searched, narrowed and sorted, and for whom."""

from __future__ import annotations

from typing import Any

import pytest

from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from tests.unit.service.access.holders import Holder, first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.fetched_rows import counted
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def make_run(local: LocalService, run: str, *, project: str = "project", steps: tuple[int, ...] = ()) -> Training:
    """A run with a committed checkpoint for each step."""
    training = Training(local, project=project, run=run)
    if steps:
        attempt = training.start()
        for save, step in enumerate(steps, start=1):
            training.save(attempt, save=save, step=step)
    return training


def listed(asker: LocalService | Holder, **query: Any) -> list[dict[str, Any]]:
    """All pages, of two runs each."""
    items: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = asker.ask("GET", routes.ALL_RUNS, query={"limit": 2, **query, **cursor})
        assert len(answer["items"]) <= 2
        items.extend(answer["items"])
        if answer["next_cursor"] is None:
            return items
        cursor = {"cursor": answer["next_cursor"]}


def names(asker: LocalService | Holder, **query: Any) -> list[str]:
    return [f"{run['project']}/{run['name']}" for run in listed(asker, **query)]


def test_a_run_is_shown_with_what_is_last_in_it(local: LocalService) -> None:
    training = make_run(local, "base", steps=(100, 300))
    last = training.latest()["checkpoint"]

    [run] = listed(local)

    info = local.ask("GET", training.path(routes.RUN))
    assert {name: run[name] for name in ("id", "project", "name", "created_at", "attempts", "version")} == {
        name: info[name] for name in ("id", "project", "name", "created_at", "attempts", "version")
    }
    assert (run["state"], run["committed_checkpoints"], run["last_step"]) == ("idle", 2, 300)
    assert (run["last_checkpoint_id"], run["last_committed_at"]) == (last["id"], last["committed_at"])
    assert run["stored_bytes"] == sum(
        checkpoint["new_bytes"] for checkpoint in local.ask("GET", training.path(routes.RUN_CHECKPOINTS))["items"]
    )


def test_states_tell_new_saving_idle_and_deleted_runs_apart(local: LocalService) -> None:
    make_run(local, "untouched")
    make_run(local, "idle", steps=(1,))
    saving = make_run(local, "saving", steps=(1,))
    saving.open(saving.start(), save=1, step=2, rank=0)
    first_save = make_run(local, "first-save")
    first_save.open(first_save.start(), save=1, step=1, rank=0)
    gone = make_run(local, "gone", steps=(1,))
    run_id = local.ask("GET", gone.path(routes.RUN))["id"]
    local.ask("DELETE", routes.path(routes.RUN_BY_ID, run=run_id), headers={"if-match": '"1"'})

    by_state = {state: names(local, state=state, sort="name", order="asc") for state in _STATES}

    assert by_state == {
        "new": ["project/untouched"],
        "saving": ["project/first-save", "project/saving"],
        "idle": ["project/idle"],
        "deleted": ["project/gone"],
    }
    each = {run["name"]: local.ask("GET", f"/v1/projects/project/runs/{run['name']}") for run in listed(local)}
    assert {name: run["state"] for name, run in each.items()} == {run["name"]: run["state"] for run in listed(local)}
    assert local.ask("GET", routes.path(routes.RUN_BY_ID, run=run_id))["state"] == "deleted"
    shown = {run["name"]: run["state"] for run in listed(local)}
    assert shown == {"untouched": "new", "idle": "idle", "saving": "saving", "first-save": "saving"}
    [deleted] = listed(local, state="deleted")
    assert deleted["id"] == run_id
    assert deleted["deleted_at"] is not None
    assert (deleted["state"], deleted["committed_checkpoints"], deleted["last_step"]) == ("deleted", 0, None)


_STATES = ("new", "saving", "idle", "deleted")


def test_what_has_nothing_to_sort_by_comes_last_in_both_directions(local: LocalService) -> None:
    for run, steps in (("a", (5,)), ("b", ()), ("c", (1, 9)), ("d", ()), ("e", (7,))):
        make_run(local, run, steps=steps)
    empty = [run for run in names(local, sort="last_step") if run in ("project/b", "project/d")]

    for sort in ("last_step", "last_committed"):
        ascending, descending = (names(local, sort=sort, order=order) for order in ("asc", "desc"))
        assert ascending[3:] == descending[3:] == empty
        assert ascending[:3] == descending[2::-1]

    assert names(local, sort="last_step", order="asc")[:3] == ["project/a", "project/e", "project/c"]
    assert names(local, sort="last_committed", order="asc")[:3] == ["project/a", "project/c", "project/e"]
    assert names(local, sort="stored_bytes")[0] == "project/c"
    assert names(local, sort="created", order="asc") == names(local, sort="name", order="asc")
    assert names(local) == names(local, sort="last_committed", order="desc")


@pytest.mark.parametrize("sort", ["last_step", "last_committed"])
def test_new_runs_are_not_looked_for_among_those_that_have_committed(local: LocalService, sort: str) -> None:
    for run, steps in (("a", (5,)), ("b", ()), ("c", (1,)), ("d", ())):
        make_run(local, run, steps=steps)

    with counted(local.database) as fetched:
        page = local.ask("GET", routes.ALL_RUNS, query={"state": "new", "sort": sort})

    assert sorted(run["name"] for run in page["items"]) == ["b", "d"]
    [of_runs] = [statement for statement in fetched.statements if "FROM runs" in statement]
    assert "IS NULL" in of_runs


def test_runs_that_sort_alike_are_all_listed_once(local: LocalService) -> None:
    for run in "abcde":
        make_run(local, run, steps=(10,))

    for sort in ("last_step", "stored_bytes"):
        ascending, descending = (names(local, sort=sort, order=order) for order in ("asc", "desc"))
        assert sorted(ascending) == [f"project/{run}" for run in "abcde"]
        assert descending == ascending[::-1]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("LLAMA", ["nlp/Llama-7b", "nlp/llama_7b"]),
        ("7B", ["nlp/Llama-7b", "nlp/llama_7b"]),
        ("_", ["nlp/llama_7b"]),
        ("%", []),
        ("\\", []),
        ("a_7", ["nlp/llama_7b"]),
        ("nl", ["nlp/Llama-7b", "nlp/llama_7b"]),
        ("p/ll", ["nlp/Llama-7b", "nlp/llama_7b"]),
        ("/", ["nlp/Llama-7b", "nlp/llama_7b", "vision/resnet"]),
        ("vision/", ["vision/resnet"]),
        ("/res", ["vision/resnet"]),
        ("nlp/7b", []),
        ("a/b/c", []),
    ],
)
def test_a_search_finds_parts_of_the_full_name_and_takes_no_character_for_a_wildcard(
    local: LocalService, search: str, found: list[str]
) -> None:
    for project, run in (("nlp", "Llama-7b"), ("nlp", "llama_7b"), ("vision", "resnet")):
        make_run(local, run, project=project)

    assert sorted(names(local, search=search)) == found


def test_a_search_that_no_name_can_hold_is_refused(local: LocalService) -> None:
    local.refused("malformed_request", "GET", routes.ALL_RUNS, query={"search": "x" * 258})


def test_a_token_sees_the_runs_it_reaches_and_no_others(local: LocalService) -> None:
    for project in ("mine", "theirs"):
        for run in ("a", "b"):
            make_run(local, run, project=project)
    bound = Holder(local, local.new_token(Scope.READ, project="mine"))
    job = first_admin(local).mint("a", project="mine")

    assert sorted(names(bound)) == ["mine/a", "mine/b"]
    assert names(job) == ["mine/a"]
    assert names(bound, search="theirs") == names(job, search="b") == []
    bound.refused("unknown_project", "GET", routes.ALL_RUNS, query={"project": "theirs"})
    assert names(local, project="theirs", sort="name", order="asc") == ["theirs/a", "theirs/b"]
    assert names(job, project="mine") == ["mine/a"]


def test_a_cursor_goes_with_its_sort_and_its_filters(local: LocalService) -> None:
    for run in "abc":
        make_run(local, run)
    cursor = local.ask("GET", routes.ALL_RUNS, query={"limit": 1, "sort": "name"})["next_cursor"]

    for changed in ({"sort": "created"}, {"sort": "name", "order": "asc"}, {"sort": "name", "search": "a"}):
        local.refused("invalid_cursor", "GET", routes.ALL_RUNS, query={"cursor": cursor, **changed})
