"""Projects: made once, listed with counts, hidden from tokens of other projects."""

from __future__ import annotations

from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.fetched_rows import counted
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def test_E164_creating_a_project_twice_gives_the_same_one(local: LocalService) -> None:
    first = local.send("POST", routes.PROJECTS, {"name": "speech"})
    again = local.send("POST", routes.PROJECTS, {"name": "speech"})

    assert (first.status, again.status) == (201, 200)
    assert first.json()["id"] == again.json()["id"]


def test_a_name_that_could_become_a_path_is_refused(local: LocalService) -> None:
    for name in ("", "..", "a/b", "ä", "a" * 129, "end."):
        assert local.send("POST", routes.PROJECTS, {"name": name}).status in (400, 422)


def test_only_an_admin_token_makes_projects(local: LocalService) -> None:
    headers = {"authorization": f"Bearer {local.new_token(Scope.WRITE)}"}

    local.refused("scope_too_narrow", "POST", routes.PROJECTS, {"name": "speech"}, headers=headers)


def test_an_unknown_project_is_404_for_everyone(local: LocalService) -> None:
    local.refused("unknown_project", "GET", routes.path(routes.PROJECT, project="none"))


def test_a_token_of_another_project_cannot_tell_hidden_from_absent(local: LocalService) -> None:
    for name in ("speech", "vision"):
        local.ask("POST", routes.PROJECTS, {"name": name})
    headers = {"authorization": f"Bearer {local.new_token(Scope.READ, project='vision')}"}

    hidden = local.refused("unknown_project", "GET", routes.path(routes.PROJECT, project="speech"), headers=headers)
    absent = local.refused("unknown_project", "GET", routes.path(routes.PROJECT, project="none"), headers=headers)
    listed = local.ask("GET", routes.PROJECTS, headers=headers)

    assert hidden["detail"] == absent["detail"]
    assert [item["name"] for item in listed["items"]] == ["vision"]


def test_projects_are_listed_by_name_page_by_page(local: LocalService) -> None:
    for name in ("c", "a", "b"):
        local.ask("POST", routes.PROJECTS, {"name": name})

    first = local.ask("GET", routes.PROJECTS, query={"limit": 2})
    second = local.ask("GET", routes.PROJECTS, query={"limit": 2, "cursor": first["next_cursor"]})

    assert [item["name"] for item in first["items"] + second["items"]] == ["a", "b", "c"]
    assert second["next_cursor"] is None


def test_projects_are_found_by_any_part_of_their_name_whatever_its_case_page_by_page(local: LocalService) -> None:
    for name in ("a_b", "audio", "axb", "reVision", "vision-1", "vision-2"):
        local.ask("POST", routes.PROJECTS, {"name": name})

    assert _found(local, "VISION") == ["reVision", "vision-1", "vision-2"]
    first = local.ask("GET", routes.PROJECTS, query={"search": "vision", "limit": 2})
    second = local.ask("GET", routes.PROJECTS, query={"search": "vision", "cursor": first["next_cursor"]})
    assert [item["name"] for item in first["items"] + second["items"]] == ["reVision", "vision-1", "vision-2"]
    assert _found(local, "a_b") == ["a_b"]  # no pattern of the database's
    assert _found(local, "%") == []
    local.refused("invalid_cursor", "GET", routes.PROJECTS, query={"search": "a", "cursor": first["next_cursor"]})


def test_a_search_finds_no_project_that_the_token_may_not_see(local: LocalService) -> None:
    for name in ("speech-1", "speech-2"):
        local.ask("POST", routes.PROJECTS, {"name": name})
    headers = {"authorization": f"Bearer {local.new_token(Scope.READ, project='speech-2')}"}

    found = local.ask("GET", routes.PROJECTS, query={"search": "speech"}, headers=headers)

    assert [item["name"] for item in found["items"]] == ["speech-2"]


def test_a_deleted_project_is_found_by_the_name_it_had(local: LocalService) -> None:
    for name in ("speech", "vision"):
        made = local.ask("POST", routes.PROJECTS, {"name": name})
        local.ask("DELETE", routes.path(routes.PROJECT_BY_ID, project=made["id"]), headers={"if-match": '"1"'})

    found = local.ask("GET", routes.PROJECTS, query={"deleted": "true", "search": "SPEE"})

    assert [item["name"] for item in found["items"]] == ["speech"]
    assert _found(local, "speech") == []


def _found(local: LocalService, search: str) -> list[str]:
    return [item["name"] for item in local.ask("GET", routes.PROJECTS, query={"search": search})["items"]]


def test_a_cursor_that_is_not_of_this_list_is_refused(local: LocalService) -> None:
    for name in ("a", "b"):
        local.ask("PUT", routes.path(routes.RUN, project="speech", run=name))
    runs = local.ask("GET", routes.path(routes.RUNS, project="speech"), query={"limit": 1})

    for cursor in (runs["next_cursor"], "nonsense", "bnVsbA", "é", "W10", "["):
        local.refused("invalid_cursor", "GET", routes.PROJECTS, query={"cursor": cursor})


def test_counts_take_the_same_number_of_queries_for_one_project_and_for_many(local: LocalService) -> None:
    training = Training(local, project="first")
    training.save(training.start(), save=1, step=1)
    one = _queries(local)
    for number in range(20):
        local.ask("POST", routes.PROJECTS, {"name": f"project-{number}"})

    assert _queries(local) == one
    found = local.ask("GET", routes.path(routes.PROJECT, project="first"))
    assert (found["runs"], found["committed_checkpoints"], found["stored_bytes"]) == (1, 1, 64)


def _queries(local: LocalService) -> int:
    """How many queries a list takes; what runs in the background may add to some of the tries."""
    return min(_queries_once(local) for _ in range(3))


def _queries_once(local: LocalService) -> int:
    with counted(local.database) as fetched:
        local.ask("GET", routes.PROJECTS)
    return len(fetched.statements)


def test_a_name_with_a_nul_is_a_mistake_of_the_caller_and_no_fault(local: LocalService) -> None:
    for path in (
        "/v1/projects/a%00b",
        "/v1/projects/a%00b/runs/r",
        "/v1/checkpoints/ckp_%00",
        "/v1/attempts/%00",
    ):
        answer = local.send("GET", path)
        assert answer.status in (400, 404), (path, answer.content)
        assert answer.json()["retryable"] is False
