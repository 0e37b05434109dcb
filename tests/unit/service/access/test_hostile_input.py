"""Input from outside that nobody means well with: bounded, refused with a 4xx, and never a way around a token."""

from __future__ import annotations

import base64
import json
import time

import pytest

from tests.unit.service.access.holders import first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService

pytestmark = BOTH_DATABASES


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"name":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"name": ' + b"1" * 100_000 + b"}",
        b'{"name": 1e999999}',
        b'{"name": "a", "name": "b", "scope": "read", "name": ["c"]}',
        b"\xff\xfe\x00",
        b"",
    ],
)
def test_deep_long_and_broken_json_is_malformed(local: LocalService, content: bytes) -> None:
    began = time.monotonic()
    local.refused(
        "malformed_request", "POST", "/v1/tokens", content=content, headers={"content-type": "application/json"}
    )
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    "name", ["a\x00b", "\ud800", "\U0001d54f" * 200, "x\r\nset-cookie: y", "'; DROP TABLE tokens; --"]
)
def test_odd_names_are_kept_as_they_are_or_refused(local: LocalService, name: str) -> None:
    answer = local.send("POST", "/v1/tokens", {"name": name, "scope": "read"})
    assert answer.status in (201, 400), answer.content
    if answer.status == 201:
        assert answer.json()["info"]["name"] == name
    listed = local.ask("GET", "/v1/tokens")["items"]
    assert (name in [token["name"] for token in listed]) == (answer.status == 201)


@pytest.mark.parametrize("filter_name", ["actor", "action", "target", "project"])
def test_odd_filters_find_nothing_or_are_refused(local: LocalService, filter_name: str) -> None:
    for text in ("a\x00b", "%", "_", "'", "\\", "x" * 400):
        answer = local.send("GET", "/v1/audit", query={filter_name: text})
        assert answer.status in (200, 400, 404), (text, answer.content)
        if answer.status == 200:
            assert answer.json()["items"] == []


@pytest.mark.parametrize(
    "at", ["0001-01-01T00:00:00", "9999-12-31T23:59:59Z", "1969-12-31T23:59:59+14:00", "1", "-1", "1e30"]
)
def test_times_at_the_ends_of_the_calendar_are_answered(local: LocalService, at: str) -> None:
    for name in ("since", "until"):
        assert local.send("GET", "/v1/audit", query={name: at}).status in (200, 400)


def test_a_forged_cursor_shows_nothing_that_the_token_may_not_see(local: LocalService) -> None:
    for project in ("mine", "theirs"):
        local.ask("POST", "/v1/projects", {"name": project})
    admin = first_admin(local)
    admin.make("read", name="theirs", projects=["theirs"])
    owner = admin.make("admin", name="owner", projects=["mine"])
    owner.make("read", name="own", projects=["mine"])
    cursor = owner.ask("GET", "/v1/tokens", query={"limit": 1})["next_cursor"]
    fingerprint, _, _ = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    seen = set()
    for position in ([1 << 60, "zzz"], [0, ""], [-1, "a"]):
        forged = base64.urlsafe_b64encode(json.dumps([fingerprint, *position]).encode()).decode().rstrip("=")
        seen |= {token["name"] for token in owner.ask("GET", "/v1/tokens", query={"cursor": forged})["items"]}
    assert seen <= {"owner", "own"}
    others: list[list[object]] = [[1 << 70, "a"], [-(1 << 64), "a"], ["a", 1], [1], [None, "a"], [True, "a"]]
    for other in others:
        forged = base64.urlsafe_b64encode(json.dumps([fingerprint, *other]).encode()).decode().rstrip("=")
        owner.refused("invalid_cursor", "GET", "/v1/tokens", query={"cursor": forged})


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer " + "shardkeep_" + "a" * 50_000,
        "Bearer shardkeep_\t" + "a" * 33,
        "bearer",
        "Bearer Bearer shardkeep_x",
        "Bearer " + "é" * 10,
        "Basic c2hhcmRrZWVwOng=",
    ],
)
def test_odd_authorizations_are_401(local: LocalService, authorization: str) -> None:
    answer = local.send("GET", "/v1/projects", headers={"authorization": authorization.encode().decode("latin-1")})
    assert answer.status == 401, answer.content
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_tokens_in_other_places_than_the_header_count_for_nothing(local: LocalService) -> None:
    token = first_admin(local).token
    for query, headers in (({"token": token, "access_token": token}, {}), (None, {"cookie": f"token={token}"})):
        local.refused("token_missing", "GET", "/v1/projects", query=query, headers={"authorization": "", **headers})
