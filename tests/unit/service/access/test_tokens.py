"""Tokens over REST: none grants more than its giver has, its text is shown once, and revoking counts at once."""

from __future__ import annotations

import pytest

from shardkeep.protocol.identifiers import new_id
from tests.unit.service.access.holders import Holder, first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService

pytestmark = BOTH_DATABASES


@pytest.fixture
def admin(local: LocalService) -> Holder:
    for name in ("mine", "other", "third"):
        local.ask("POST", "/v1/projects", {"name": name})
    return first_admin(local)


def test_the_text_of_a_token_is_shown_once_and_by_no_other_answer(admin: Holder) -> None:
    made = admin.ask("POST", "/v1/tokens", {"name": "ci", "scope": "write", "projects": ["mine", "other"]})
    text, info = made["token"], made["info"]
    assert (info["name"], info["scope"], info["projects"]) == ("ci", "write", ["mine", "other"])
    for path in ("/v1/tokens", f"/v1/tokens/{info['id']}", "/v1/audit"):
        answer = admin.send("GET", path)
        assert answer.is_success
        assert text.encode() not in answer.content


def test_a_token_of_several_projects_sees_those_and_no_other(admin: Holder) -> None:
    reader = admin.make("read", projects=["mine", "other"])
    listed = [project["name"] for project in reader.ask("GET", "/v1/projects")["items"]]
    assert listed == ["mine", "other"]
    reader.ask("GET", "/v1/projects/other")
    reader.refused("unknown_project", "GET", "/v1/projects/third")


@pytest.mark.parametrize("scope", ["metrics", "read", "write", "delete", "admin"])
def test_each_scope_includes_those_below_it(admin: Holder, scope: str) -> None:
    holder = admin.make(scope)
    order = ["metrics", "read", "write", "delete", "admin"]
    requests = {
        "metrics": ("GET", "/metrics"),
        "read": ("GET", "/v1/projects"),
        "write": ("POST", "/v1/attempts/att_0/resume"),
        "delete": ("DELETE", "/v1/checkpoints/ckp_0"),
        "admin": ("GET", "/v1/tokens"),
    }
    for needed, (method, path) in requests.items():
        answer = holder.send(method, path, {} if method == "POST" else None)
        assert (answer.status == 403) == (order.index(scope) < order.index(needed)), (needed, answer.content)


@pytest.mark.parametrize("scope", ["metrics", "read", "write", "delete"])
def test_only_an_administrator_makes_sees_and_revokes_tokens(admin: Holder, scope: str) -> None:
    holder = admin.make(scope)
    token_id = holder.info["id"]
    body = {"name": "more", "scope": "read"}
    for method, path, sent in (
        ("POST", "/v1/tokens", body),
        ("GET", "/v1/tokens", None),
        ("GET", f"/v1/tokens/{token_id}", None),
        ("DELETE", f"/v1/tokens/{token_id}", None),
    ):
        holder.refused("scope_too_narrow", method, path, sent)


def test_a_project_admin_never_widens_projects(admin: Holder) -> None:
    owner = admin.make("admin", projects=["mine"])
    assert owner.make("admin").info["projects"] == ["mine"]
    assert owner.make("write", projects=["mine"]).info["projects"] == ["mine"]
    hidden = owner.refused(
        "unknown_project", "POST", "/v1/tokens", {"name": "x", "scope": "read", "projects": ["other"]}
    )
    absent = owner.refused(
        "unknown_project", "POST", "/v1/tokens", {"name": "x", "scope": "read", "projects": ["nope"]}
    )
    assert hidden["detail"] == absent["detail"]


def test_a_project_admin_sees_and_revokes_only_tokens_that_reach_no_further(admin: Holder) -> None:
    owner = admin.make("admin", name="owner", projects=["mine"])
    own = owner.make("read", name="own")
    wider = admin.make("read", name="wider", projects=["mine", "other"])
    everywhere = admin.make("read", name="everywhere")
    assert {token["name"] for token in owner.ask("GET", "/v1/tokens")["items"]} == {"owner", "own"}
    for hidden in (wider, everywhere):
        for method in ("GET", "DELETE"):
            owner.refused("unknown_token", method, f"/v1/tokens/{hidden.info['id']}")
    owner.ask("DELETE", f"/v1/tokens/{own.info['id']}")
    own.refused("token_invalid", "GET", "/v1/projects")


def test_a_token_never_grants_a_longer_life_than_its_own(admin: Holder) -> None:
    short = admin.make("admin", expires_in_seconds=3600)
    assert short.make("read").info["expires_at"] == short.info["expires_at"]
    problem = short.refused(
        "scope_too_narrow", "POST", "/v1/tokens", {"name": "x", "scope": "read", "expires_in_seconds": 7200}
    )
    assert "expires in" in problem["detail"]


def test_an_expired_token_is_refused(admin: Holder) -> None:
    holder = admin.make("read", expires_in_seconds=60)
    holder.ask("GET", "/v1/projects")
    admin.service.advance(61)
    admin.service.app.state.gate.forget()
    holder.refused("token_expired", "GET", "/v1/projects")


def test_revoking_counts_at_once_and_is_repeatable(admin: Holder) -> None:
    holder = admin.make("read")
    path = f"/v1/tokens/{holder.info['id']}"
    first = admin.ask("DELETE", path)["revoked_at"]
    holder.refused("token_invalid", "GET", "/v1/projects")
    assert first is not None
    assert admin.ask("DELETE", path)["revoked_at"] == first
    admin.refused("unknown_token", "DELETE", f"/v1/tokens/{new_id('tok')}")


def test_a_repeated_request_makes_no_second_token_and_answers_with_a_text_that_works(admin: Holder) -> None:
    body = {"id": new_id("tok"), "name": "once", "scope": "read"}
    lost, kept = (admin.ask("POST", "/v1/tokens", body)["token"] for _ in range(2))
    Holder(admin.service, lost).refused("token_invalid", "GET", "/v1/projects")
    Holder(admin.service, kept).ask("GET", "/v1/projects")
    assert [token["name"] for token in admin.ask("GET", "/v1/tokens")["items"]].count("once") == 1
    admin.service.app.state.gate.write_uses()
    admin.refused("malformed_request", "POST", "/v1/tokens", body)
    admin.refused("malformed_request", "POST", "/v1/tokens", {**body, "scope": "admin"})


def test_tokens_are_listed_newest_first_page_by_page(admin: Holder) -> None:
    for number in range(5):
        admin.make("read", name=f"n{number}", projects=["mine"])
    names: list[str] = []
    query: dict[str, object] = {"limit": 2, "project": "mine"}
    while True:
        page = admin.ask("GET", "/v1/tokens", query=query)
        names += [token["name"] for token in page["items"] if token["projects"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert names == ["n4", "n3", "n2", "n1", "n0"]


def test_living_leaves_out_what_cannot_be_used_any_more(admin: Holder) -> None:
    admin.ask("DELETE", f"/v1/tokens/{admin.make('read', name='revoked').info['id']}")
    admin.make("read", name="expired", expires_in_seconds=1)
    admin.make("read", name="usable")
    admin.service.advance(2)
    names = {token["name"] for token in admin.ask("GET", "/v1/tokens", query={"living": "true"})["items"]}
    assert "usable" in names
    assert not names & {"revoked", "expired"}


@pytest.mark.parametrize(
    "body",
    [
        {"name": "", "scope": "read"},
        {"name": "x", "scope": "owner"},
        {"name": "x", "scope": "read", "projects": []},
        {"name": "x", "scope": "read", "projects": ["../x"]},
        {"name": "x", "scope": "read", "projects": ["mine"] * 101},
        {"name": "x" * 201, "scope": "read"},
        {"name": "x", "scope": "read", "expires_in_seconds": 0},
        {"name": "x", "scope": "read", "expires_in_seconds": 1e30},
        {"name": "x", "scope": "read", "id": "tok_1"},
        {"name": "x", "scope": "read", "run": "r"},
    ],
)
def test_malformed_wishes_are_refused(admin: Holder, body: dict[str, object]) -> None:
    admin.refused("malformed_request", "POST", "/v1/tokens", body)
