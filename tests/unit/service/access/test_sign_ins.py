"""Sign-ins of browsers: a token begins one, a cookie stands for it, and it ends by hand, by time and with its token."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from shardkeep.protocol import routes
from shardkeep_service.access.browser_cookie import PLAIN_NAME, SECURE_NAME
from shardkeep_service.access.models import SignInRow, Token
from shardkeep_service.access.scopes import Scope
from shardkeep_service.access.sign_ins import LIVING_LIMIT
from tests.unit.service.access.browsers import Browser, signed_in
from tests.unit.service.access.holders import Holder, first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES

HOURS = 3600


@pytest.fixture
def admin(local: LocalService) -> Holder:
    return first_admin(local)


@pytest.fixture
def browser(local: LocalService, admin: Holder) -> Browser:
    return signed_in(local, admin.token)


def sign_ins(local: LocalService) -> int:
    with local.database.read() as session:
        return session.scalars(select(func.count()).select_from(SignInRow)).one()


def entries(admin: Holder, action: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = admin.ask("GET", f"{routes.AUDIT}?action={action}")["items"]
    return found


def test_a_cookie_stands_for_the_token_that_signed_in(browser: Browser, admin: Holder) -> None:
    assert browser.ask("GET", routes.TOKEN_SELF)["id"] == admin.info["id"]
    assert browser.ask("POST", routes.PROJECTS, {"name": "made"})["name"] == "made"


def test_a_page_that_is_loaded_again_asks_who_is_signed_in(browser: Browser, admin: Holder) -> None:
    answer = browser.ask("GET", routes.SIGN_IN)
    assert answer["csrf"] == browser.csrf
    assert answer["token"]["id"] == admin.info["id"]


def test_without_a_cookie_nobody_is_signed_in_even_with_a_token(local: LocalService, admin: Holder) -> None:
    Browser(local).refused("token_missing", "GET", routes.SIGN_IN)
    admin.refused("token_missing", "GET", routes.SIGN_IN)


@pytest.mark.parametrize("text", ["nonsense", "shardkeep_" + "0" * 33, "x" * 200])
def test_what_is_no_token_signs_nobody_in(local: LocalService, text: str) -> None:
    browser = Browser(local)
    browser.refused("token_invalid", "POST", routes.SIGN_IN, {"token": text})
    assert browser.cookies == {}
    assert sign_ins(local) == 0


def test_a_pasted_token_may_have_space_around_it(local: LocalService, admin: Holder) -> None:
    assert Browser(local).sign_in(f" {admin.token}\n")["token"]["id"] == admin.info["id"]


def test_an_expired_and_a_revoked_token_sign_nobody_in(local: LocalService, admin: Holder) -> None:
    short = admin.make("read", expires_in_seconds=60)
    gone = admin.make("read")
    admin.ask("DELETE", routes.path(routes.TOKEN, token=gone.info["id"]))
    local.advance(61)
    Browser(local).refused("token_expired", "POST", routes.SIGN_IN, {"token": short.token})
    Browser(local).refused("token_invalid", "POST", routes.SIGN_IN, {"token": gone.token})


def test_the_cookie_is_for_this_host_only_out_of_reach_of_scripts_and_of_other_sites(
    local: LocalService, admin: Holder
) -> None:
    answer = Browser(local).send("POST", routes.SIGN_IN, {"token": admin.token})
    taken, given = answer.headers.getlist("set-cookie")
    parts = given.split("; ")
    assert parts[0].startswith(f"{PLAIN_NAME}=")
    assert parts[1:] == ["Path=/", "HttpOnly", "SameSite=Strict", f"Max-Age={12 * HOURS}"]
    assert taken.startswith(f"{SECURE_NAME}=;")
    assert taken.endswith("Max-Age=0")
    assert answer.headers["cache-control"] == "no-store"


def test_neither_cookie_answer_nor_database_holds_the_token_or_the_cookies_secret(
    browser: Browser, local: LocalService, admin: Holder
) -> None:
    (secret,) = browser.cookies.values()
    answer = browser.send("GET", routes.SIGN_IN)
    for hidden in (secret, admin.token, admin.token.removeprefix("shardkeep_")[6:]):
        assert hidden.encode() not in answer.content
    assert admin.token not in secret
    assert browser.csrf not in secret
    with local.database.read() as session:
        row = session.scalars(select(SignInRow)).one()
        assert secret not in (row.id, row.hash)
        assert browser.csrf not in (row.id, row.hash)


def test_signing_out_ends_it_at_once_and_takes_the_cookie_away(browser: Browser, local: LocalService) -> None:
    kept = Browser(local, cookies=dict(browser.cookies), csrf=browser.csrf)
    assert browser.send("DELETE", routes.SIGN_IN).status == 204
    assert browser.cookies == {}
    kept.refused("sign_in_ended", "GET", routes.TOKEN_SELF)
    kept.refused("sign_in_ended", "GET", routes.SIGN_IN)
    assert sign_ins(local) == 0


def test_signing_out_again_or_without_a_cookie_changes_nothing(
    browser: Browser, local: LocalService, admin: Holder
) -> None:
    kept = Browser(local, cookies=dict(browser.cookies), csrf=browser.csrf)
    for other in (browser, kept, Browser(local)):
        assert other.send("DELETE", routes.SIGN_IN).status == 204
    assert len(entries(admin, "sign_in.delete")) == 1


def test_revoking_the_token_ends_its_sign_ins_at_once(local: LocalService, admin: Holder) -> None:
    other = admin.make("read")
    browser = signed_in(local, other.token)
    browser.ask("GET", routes.TOKEN_SELF)
    admin.ask("DELETE", routes.path(routes.TOKEN, token=other.info["id"]))
    browser.refused("sign_in_ended", "GET", routes.TOKEN_SELF)


def test_a_revocation_over_the_dashboard_ends_the_sign_in_that_asked_for_it(browser: Browser, admin: Holder) -> None:
    browser.ask("DELETE", routes.path(routes.TOKEN, token=admin.info["id"]))
    browser.refused("sign_in_ended", "GET", routes.PROJECTS)


def test_a_sign_in_ends_after_its_time_and_its_row_goes_with_the_next_one(
    browser: Browser, local: LocalService, admin: Holder
) -> None:
    local.advance(12 * HOURS - 60)
    browser.ask("GET", routes.TOKEN_SELF)
    local.advance(61)
    local.app.state.gate.forget()
    browser.refused("sign_in_ended", "GET", routes.TOKEN_SELF)
    signed_in(local, admin.token)
    assert sign_ins(local) == 1


def test_a_sign_in_never_outlives_its_token(local: LocalService, admin: Holder) -> None:
    short = admin.make("read", expires_in_seconds=600)
    browser = Browser(local)
    answer = browser.send("POST", routes.SIGN_IN, {"token": short.token})
    assert answer.json()["expires_at"] == short.info["expires_at"]
    seconds = int(answer.headers.getlist("set-cookie")[-1].rpartition("Max-Age=")[2])
    assert 590 < seconds <= 600
    local.advance(601)
    browser.refused("sign_in_ended", "GET", routes.TOKEN_SELF)


def test_signing_in_anew_ends_what_the_browser_had(browser: Browser, local: LocalService, admin: Holder) -> None:
    before = Browser(local, cookies=dict(browser.cookies), csrf=browser.csrf)
    browser.sign_in(admin.make("read").token)
    assert browser.cookies != before.cookies
    before.refused("sign_in_ended", "GET", routes.TOKEN_SELF)
    assert browser.ask("GET", routes.TOKEN_SELF)["scope"] == "read"


def test_a_token_has_so_many_sign_ins_and_then_the_oldest_ends(local: LocalService, admin: Holder) -> None:
    oldest, second = signed_in(local, admin.token), signed_in(local, admin.token)
    for _ in range(LIVING_LIMIT - 1):
        signed_in(local, admin.token)
    oldest.refused("sign_in_ended", "GET", routes.TOKEN_SELF)
    second.ask("GET", routes.TOKEN_SELF)
    assert sign_ins(local) == LIVING_LIMIT


def test_a_sign_in_does_no_more_than_its_token(local: LocalService, admin: Holder) -> None:
    Training(local)
    admin.ask("POST", routes.PROJECTS, {"name": "other"})
    reader = signed_in(local, admin.make("read", projects=["project"]).token)
    assert [project["name"] for project in reader.ask("GET", routes.PROJECTS)["items"]] == ["project"]
    reader.refused("unknown_project", "GET", routes.path(routes.PROJECT, project="other"))
    reader.refused("scope_too_narrow", "POST", routes.PROJECTS, {"name": "more"})
    reader.refused("scope_too_narrow", "GET", routes.AUDIT)


def test_a_jobs_token_signs_in_and_sees_its_run_only(local: LocalService, admin: Holder) -> None:
    Training(local)
    other = {"project": "project", "run": "other"}
    admin.ask("PUT", routes.path(routes.RUN, **other))
    job = signed_in(local, admin.mint("run").token)
    assert job.ask("GET", routes.path(routes.RUN, project="project", run="run"))["name"] == "run"
    job.refused("unknown_run", "GET", routes.path(routes.RUN, **other))
    job.refused("scope_too_narrow", "POST", routes.JOB_TOKENS, {"project": "project", "run": "run"})


def test_a_job_signed_in_ends_with_the_token_that_minted_its_own(local: LocalService, admin: Holder) -> None:
    Training(local)
    minter = admin.make("write")
    job = signed_in(local, minter.mint("run").token)
    admin.ask("DELETE", routes.path(routes.TOKEN, token=minter.info["id"]))
    job.refused("sign_in_ended", "GET", routes.TOKEN_SELF)


def test_beginning_and_end_are_in_the_audit_log_with_the_address(browser: Browser, admin: Holder) -> None:
    browser.ask("DELETE", routes.SIGN_IN)
    (begun,), (ended,) = entries(admin, "sign_in.create"), entries(admin, "sign_in.delete")
    assert begun["actor"] == ended["actor"] == admin.info["id"]
    assert begun["target"] == ended["target"]
    assert begun["detail"] == {"address": "127.0.0.1"}


def test_the_owner_of_a_project_sees_the_sign_ins_of_its_tokens(local: LocalService, admin: Holder) -> None:
    admin.ask("POST", routes.PROJECTS, {"name": "owned"})
    owner = admin.make("admin", projects=["owned"])
    signed_in(local, owner.token)
    signed_in(local, admin.token)
    (seen,) = entries(owner, "sign_in")
    assert (seen["project"], seen["actor"]) == ("owned", owner.info["id"])


def test_what_is_done_signed_in_is_recorded_as_done_by_the_token(browser: Browser, admin: Holder) -> None:
    browser.ask("POST", routes.PROJECTS, {"name": "made"})
    (made,) = entries(admin, "project.create")
    assert made["actor"] == admin.info["id"]


def test_uses_of_token_and_sign_in_are_written(local: LocalService, admin: Holder) -> None:
    holder = admin.make("read")
    browser = signed_in(local, holder.token)
    assert admin.ask("GET", routes.path(routes.TOKEN, token=browser.ask("GET", routes.SIGN_IN)["token"]["id"]))[
        "last_used_at"
    ]
    local.advance(100)
    local.app.state.gate.forget()
    browser.ask("GET", routes.TOKEN_SELF)
    local.app.state.gate.write_uses()
    with local.database.read() as session:
        row = session.scalars(select(SignInRow)).one()
        token = session.get_one(Token, row.token_id)
        assert row.last_used_at is not None
        assert row.last_used_at - row.created_at >= 100_000_000
        assert token.last_used_at == row.last_used_at


def test_a_bearer_token_wins_over_the_cookie_and_needs_nothing_of_a_browser(browser: Browser, admin: Holder) -> None:
    reader = admin.make("read")
    answer = browser.ask("GET", routes.TOKEN_SELF, headers={"authorization": f"Bearer {reader.token}"})
    assert answer["id"] == reader.info["id"]
    strange: dict[str, str | None] = {
        "authorization": f"Bearer {admin.token}",
        "host": "elsewhere.example",
        "origin": "https://elsewhere.example",
        "sec-fetch-site": "cross-site",
        routes.CSRF_HEADER: None,
    }
    assert browser.ask("POST", routes.PROJECTS, {"name": "made"}, headers=strange)["name"] == "made"
    wrong = {"authorization": "Bearer shardkeep_wrong"}
    browser.refused("token_invalid", "GET", routes.TOKEN_SELF, headers=wrong)


def test_another_scheme_in_the_header_is_the_proxys_and_leaves_the_cookie_its_worth(browser: Browser) -> None:
    assert browser.send("GET", routes.TOKEN_SELF, headers={"authorization": "Basic eDp5"}).status == 200


def test_a_token_in_a_cookie_is_no_token(local: LocalService, admin: Holder) -> None:
    for name in (PLAIN_NAME, SECURE_NAME, "authorization", "token"):
        browser = Browser(local, cookies={name: admin.token})
        code = "sign_in_ended" if name in (PLAIN_NAME, SECURE_NAME) else "token_missing"
        browser.refused(code, "GET", routes.TOKEN_SELF)


def test_the_cookies_secret_is_no_token(browser: Browser, local: LocalService) -> None:
    browser.ask("GET", routes.TOKEN_SELF)
    (secret,) = browser.cookies.values()
    headers = {"authorization": f"Bearer {secret}"}
    Browser(local).refused("token_invalid", "GET", routes.TOKEN_SELF, headers=headers)
    Browser(local).refused("token_invalid", "POST", routes.SIGN_IN, {"token": secret})


def test_a_second_cookie_of_the_name_planted_by_a_neighbour_counts_for_nothing(browser: Browser) -> None:
    (secret,) = browser.cookies.values()
    headers: dict[str, str | None] = {"cookie": f"{PLAIN_NAME}=planted; {PLAIN_NAME}={secret}"}
    browser.refused("sign_in_ended", "GET", routes.TOKEN_SELF, headers=headers)


def test_who_sends_two_cookies_of_the_name_is_told_how_to_get_out(browser: Browser, admin: Holder) -> None:
    """Signing in anew replaces only ours, so that is refused as well, where the person sees the reason."""
    (secret,) = browser.cookies.values()
    for csrf in (browser.csrf, None):
        headers: dict[str, str | None] = {
            "cookie": f"{PLAIN_NAME}=planted; {PLAIN_NAME}={secret}",
            routes.CSRF_HEADER: csrf,
        }
        for method, path, body in (
            ("GET", routes.SIGN_IN, None),
            ("POST", routes.PROJECTS, {"name": "made"}),
            ("POST", routes.SIGN_IN, {"token": admin.token}),
        ):
            problem = browser.refused("sign_in_ended", method, path, body, headers=headers)
            assert "remove the cookies of this host" in problem["detail"]
    assert admin.ask("GET", routes.PROJECTS)["items"] == []


def test_signing_out_with_two_cookies_of_the_name_takes_ours_away(browser: Browser) -> None:
    (secret,) = browser.cookies.values()
    headers: dict[str, str | None] = {"cookie": f"{PLAIN_NAME}=planted; {PLAIN_NAME}={secret}"}
    assert browser.send("DELETE", routes.SIGN_IN, headers={**headers, routes.CSRF_HEADER: None}).status == 204
    assert browser.cookies == {}


def test_an_empty_cookie_of_the_name_is_none(browser: Browser, local: LocalService) -> None:
    (secret,) = browser.cookies.values()
    empty = f"{PLAIN_NAME}="
    assert browser.send("GET", routes.SIGN_IN, headers={"cookie": f"{empty}; {PLAIN_NAME}={secret}"}).status == 200
    Browser(local).refused("token_missing", "GET", routes.SIGN_IN, headers={"cookie": empty})


def test_without_the_dashboard_a_cookie_is_nothing(
    tmp_path: Path, browser: Browser, database_url: str | None, local: LocalService
) -> None:
    plain = LocalService(tmp_path / "service-plain", database_url=database_url, ui_enabled=False)
    with plain as service:
        other = Browser(service, cookies=dict(browser.cookies), csrf=browser.csrf)
        other.refused("token_missing", "GET", routes.TOKEN_SELF)
        other.refused("no_such_route", "POST", routes.SIGN_IN, {"token": first_admin(service).token})


def test_times_of_the_answer_are_of_database_time(browser: Browser, local: LocalService) -> None:
    ends = datetime.fromisoformat(browser.ask("GET", routes.SIGN_IN)["expires_at"])
    with local.database.read() as session:
        now = local.database.now(session) / 1e6
    assert 12 * HOURS - 60 < ends.timestamp() - now <= 12 * HOURS


def test_a_stranger_signed_in_under_tls_has_the_host_cookie(tmp_path: Path, database_url: str | None) -> None:
    settings: dict[str, Any] = {"database_url": database_url, "ui_hosts": "dash.example"}
    with LocalService(tmp_path / "tls", **settings) as service:
        browser = signed_in(service, service.new_token(Scope.READ), origin="https://dash.example")
        assert list(browser.cookies) == [SECURE_NAME]
        browser.ask("GET", routes.TOKEN_SELF)
        answer = browser.send("POST", routes.SIGN_IN, {"token": service.new_token(Scope.READ)})
        assert answer.headers.getlist("set-cookie")[-1].split("; ")[1:5] == [
            "Path=/",
            "HttpOnly",
            "SameSite=Strict",
            "Secure",
        ]
