"""The audit log over REST: every change is in it, nothing changes it, and tenants see their own part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from shardkeep.protocol import routes
from shardkeep_service.main import create_app
from shardkeep_service.settings import Settings
from tests.unit.service.access.holders import first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training

RECORDED = {
    ("POST", routes.PROJECTS): "project.create",
    ("PUT", routes.RUN): "run.create",
    ("POST", routes.RUN_ATTEMPTS): "attempt.begin",
    ("POST", routes.RESUME): "attempt.resume",
    ("POST", routes.ATTEMPT_CHECKPOINTS): "checkpoint.open",
    ("POST", routes.ABORT): "checkpoint.abort",
    ("DELETE", routes.CHECKPOINT): "checkpoint.delete",
    ("POST", routes.RESTORE): "checkpoint.restore",
    ("PUT", routes.PIN): "checkpoint.pin",
    ("DELETE", routes.PIN): "checkpoint.unpin",
    ("POST", routes.TOKENS): "token.create",
    ("POST", routes.JOB_TOKENS): "token.create",
    ("DELETE", routes.TOKEN): "token.revoke",
    ("PUT", routes.QUOTA): "quota.set",
    ("POST", routes.RUN_SAVE_REQUEST): "run.request_save",
}
"""What each route of a save, a token or a quota records."""
UPKEEP = {
    ("DELETE", routes.PROJECT_BY_ID): "project.delete",
    ("POST", routes.PROJECT_RESTORE): "project.restore",
    ("DELETE", routes.RUN_BY_ID): "run.delete",
    ("POST", routes.RUN_RESTORE): "run.restore",
    ("PUT", routes.PROJECT_RETENTION): "retention.set",
    ("DELETE", routes.PROJECT_RETENTION): "retention.clear",
    ("POST", routes.PROJECT_RETENTION_APPLY): "checkpoint.delete",
    ("PUT", routes.RUN_RETENTION): "retention.set",
    ("DELETE", routes.RUN_RETENTION): "retention.clear",
    ("POST", routes.RUN_RETENTION_APPLY): "checkpoint.delete",
    ("PUT", routes.TAG): "checkpoint.tag",
    ("DELETE", routes.TAG): "checkpoint.untag",
    ("POST", routes.ACCEPT): "checkpoint.accept",
}
SIGN_INS = {
    ("POST", routes.SIGN_IN): "sign_in.create",
    ("DELETE", routes.SIGN_IN): "sign_in.delete",
}
"""Tried in `test_sign_ins.py`."""
NO_CHANGE = {
    ("POST", routes.BEAT),  # renews a lease
    ("PUT", routes.INVENTORY),  # a part of beginning, which is recorded
    ("POST", routes.NEGOTIATE),  # a part of a save, whose opening and end are recorded
    ("PUT", routes.CHUNK),
    ("PUT", routes.MANIFEST),
    ("POST", routes.READ_TARGETS),  # questions with a body
    ("POST", routes.LOAD_PLAN),
    ("POST", routes.PROJECT_RETENTION_PLAN),
    ("POST", routes.RUN_RETENTION_PLAN),
    ("POST", routes.DAMAGE),  # the service looks itself, and records what it finds
}


def test_every_route_that_may_change_something_is_recorded_or_listed_as_no_change(tmp_path: Path) -> None:
    table = create_app(Settings(data_dir=tmp_path)).routes
    changing = {
        (method, route.path)
        for route in table
        if isinstance(route, APIRoute)
        for method in route.methods or ()
        if method not in ("GET", "HEAD")
    }
    assert changing == RECORDED.keys() | UPKEEP.keys() | SIGN_INS.keys() | NO_CHANGE


def test_no_route_changes_the_audit_log(tmp_path: Path) -> None:
    for route in create_app(Settings(data_dir=tmp_path)).routes:
        assert isinstance(route, APIRoute)
        if route.path.startswith(routes.AUDIT):
            assert route.methods == {"GET"}


def entries(service: LocalService, **query: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.ask("GET", "/v1/audit", query={"limit": 200, **query})["items"]
    return found


@pytest.fixture
def story(local: LocalService) -> Training:
    """Everything the table above speaks of, each once; repeated requests leave nothing."""
    local.ask("POST", "/v1/projects", {"name": "made"})
    local.ask("POST", "/v1/projects", {"name": "made"})
    training = Training(local)
    Training(local)
    attempt = training.start(fresh=True)
    for _ in range(2):
        local.ask("POST", training.path(routes.RUN_SAVE_REQUEST))
    kept = training.save(attempt, save=1, step=1)
    given_up = training.open_all(attempt, save=2, step=2)
    for _ in range(2):
        local.ask("POST", f"/v1/checkpoints/{given_up}/abort", {"rank": 0, "reason": "no more"})
    version = training.info(kept)["version"]
    for method, path in (("PUT", "/pin"), ("DELETE", "/pin"), ("DELETE", ""), ("POST", "/restore")):
        for _ in range(2):
            headers = {"if-match": f'"{version}"', "x-request-id": f"{method}{path.replace('/', '-')}"}
            changed = local.ask(method, f"/v1/checkpoints/{kept}{path}", headers=headers)
        version = changed["version"]
    admin = first_admin(local)
    token = admin.make("read", projects=["project"]).info["id"]
    admin.mint()
    for _ in range(2):
        local.ask("DELETE", f"/v1/tokens/{token}")
        local.ask("PUT", "/v1/projects/project/quota", {"max_bytes": 10**9})
    return training


@BOTH_DATABASES
def test_each_change_leaves_one_entry_and_a_repetition_none(story: Training) -> None:
    found = [entry["action"] for entry in entries(story.service)]
    expected = [
        "project.create",
        "project.create",
        "run.create",
        "attempt.begin",
        "attempt.resume",
        "run.request_save",
        "checkpoint.open",
        "checkpoint.commit",
        "checkpoint.open",
        "checkpoint.abort",
        "checkpoint.pin",
        "checkpoint.unpin",
        "checkpoint.delete",
        "checkpoint.restore",
        "token.create",
        "token.create",
        "token.revoke",
        "quota.set",
    ]
    assert found == expected[::-1]
    assert set(RECORDED.values()) <= set(found)


@BOTH_DATABASES
def test_upkeep_is_recorded_too_once_for_each_change(local: LocalService) -> None:
    training = Training(local)
    attempt = training.start(fresh=True)
    first, _, _ = (training.save(attempt, save=step, step=step) for step in (1, 2, 3))
    tag = routes.path(routes.TAG, checkpoint=first, tag="best")
    for method in ("PUT", "PUT", "DELETE"):
        local.ask(method, tag)
    places = {"project": "project", "run": "run"}
    for policy, apply in (
        (routes.RUN_RETENTION, routes.RUN_RETENTION_APPLY),
        (routes.PROJECT_RETENTION, routes.PROJECT_RETENTION_APPLY),
    ):
        for _ in range(2):
            local.ask("PUT", routes.path(policy, **places), {"keep_last": 1})
        local.ask("POST", routes.path(apply, **places))
        local.ask("DELETE", routes.path(policy, **places))
    for by_id, restore, id_ in (
        (routes.RUN_BY_ID, routes.RUN_RESTORE, {"run": local.ask("GET", training.path(routes.RUN))["id"]}),
        (routes.PROJECT_BY_ID, routes.PROJECT_RESTORE, {"project": local.ask("GET", "/v1/projects/project")["id"]}),
    ):
        for method, template in (("DELETE", by_id), ("POST", restore)):
            version = local.ask("GET", routes.path(by_id, **id_))["version"]
            local.ask(method, routes.path(template, **id_), headers={"if-match": f'"{version}"'})
    found = {entry["action"] for entry in entries(local)}
    untried = {"checkpoint.accept"}
    assert set(UPKEEP.values()) - untried <= found
    assert len(entries(local, action="retention.set")) == 2


@BOTH_DATABASES
def test_an_entry_names_the_token_the_target_and_the_request(story: Training) -> None:
    (deleted,) = entries(story.service, action="checkpoint.delete")
    holder = first_admin(story.service).info
    assert (deleted["actor"], deleted["actor_name"]) == (holder["id"], holder["name"])
    assert deleted["request_id"] == "DELETE"
    assert deleted["project"] == "project"
    (committed,) = entries(story.service, action="checkpoint.commit")
    assert (committed["actor"], committed["target"]) == ("worker", deleted["target"])


@BOTH_DATABASES
def test_entries_are_found_by_actor_action_noun_project_target_and_time(story: Training) -> None:
    service = story.service
    every = entries(service)
    assert {entry["action"] for entry in entries(service, action="token")} == {"token.create", "token.revoke"}
    assert {entry["actor"] for entry in entries(service, actor="worker")} == {"worker"}
    assert {entry["project"] for entry in entries(service, project="made")} == {"made"}
    target = every[-6]["target"]
    assert {entry["target"] for entry in entries(service, target=target)} == {target}
    middle = every[8]["at"]
    later, earlier = entries(service, since=middle), entries(service, until=middle)
    assert [*later, *earlier] == every
    assert entries(service, action="tok") == []
    assert entries(service, action="token%") == []


@BOTH_DATABASES
def test_the_list_goes_page_by_page_and_refuses_another_lists_cursor(story: Training) -> None:
    service, every, found = story.service, entries(story.service), []
    query: dict[str, Any] = {"limit": 4}
    while True:
        page = service.ask("GET", "/v1/audit", query=query)
        found += page["items"]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert found == every
    service.refused("invalid_cursor", "GET", "/v1/audit", query={**query, "action": "token"})


@BOTH_DATABASES
def test_the_export_is_the_whole_log_as_lines_oldest_first(story: Training) -> None:
    answer = story.service.send("GET", "/v1/audit/export", query={"project": "project"})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.content.splitlines()]
    assert lines == entries(story.service, project="project")[::-1]
    story.service.refused("unknown_project", "GET", "/v1/audit/export", query={"project": "nope"})


@BOTH_DATABASES
def test_the_export_takes_the_filters_of_the_list(story: Training) -> None:
    service, every = story.service, entries(story.service)
    token = next(entry["actor"] for entry in every if entry["actor"].startswith("tok_"))
    for wanted in (
        {"actor": token},
        {"action": "token"},
        {"action": "checkpoint.commit"},
        {"target": every[-6]["target"]},
        {"project": "project", "since": every[8]["at"]},
        {"until": every[8]["at"], "action": "checkpoint"},
    ):
        lines = [
            json.loads(line) for line in service.send("GET", "/v1/audit/export", query=wanted).content.splitlines()
        ]
        assert lines
        assert len(lines) < len(every)
        assert lines == entries(service, **wanted)[::-1]


@BOTH_DATABASES
def test_the_export_is_saved_as_a_file_where_a_browser_asks_for_it(story: Training) -> None:
    answer = story.service.send("GET", "/v1/audit/export")
    assert answer.headers["content-disposition"] == 'attachment; filename="shardkeep-audit.jsonl"'


@BOTH_DATABASES
def test_a_tenant_sees_what_happened_in_its_projects_and_nothing_else(story: Training) -> None:
    owner = first_admin(story.service).make("admin", projects=["made"])
    found = owner.ask("GET", "/v1/audit")["items"]
    assert {entry["project"] for entry in found} == {"made"}
    assert b"ckp_" not in owner.send("GET", "/v1/audit/export").content
    owner.refused("unknown_project", "GET", "/v1/audit", query={"project": "project"})
    reader = first_admin(story.service).make("delete")
    reader.refused("scope_too_narrow", "GET", "/v1/audit")
