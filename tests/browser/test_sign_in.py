"""Signing in and out, and what a sign-in may do: the service decides, whatever the page shows."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from playwright.sync_api import Page, Route, expect

from shardkeep.connection.access_client import AccessClient
from shardkeep.protocol.messages import CreateToken
from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import Dashboard
from tests.browser.served import Served
from tests.browser.tables import expect_rows
from tests.browser.traffic import ask_only_when_told

_ASK: Final = """
async ([method, path, headers]) => {
  const answer = await fetch(path, {method, headers})
  return [answer.status, (await answer.json()).code ?? null]
}
"""
_WHAT_IS_KEPT: Final = """
() => ({
  cookie: document.cookie, local: {...localStorage}, session: {...sessionStorage}, url: location.href,
  text: document.documentElement.outerHTML, fields: [...document.querySelectorAll('input')].map(one => one.value),
})
"""


def fill_in(page: Page, token: str) -> None:
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Sign in").click()


def ask(page: Page, method: str, path: str, **headers: str) -> tuple[int, str | None]:
    status, code = page.evaluate(_ASK, [method, path, headers])
    return status, code


def csrf_of(page: Page) -> str:
    text: str = page.evaluate("fetch('/v1/sign-in').then(answer => answer.json()).then(body => body.csrf)")
    return text


def test_a_stranger_signs_in_and_is_led_to_where_they_were_going(open_dashboard: OpenDashboard, served: Served) -> None:
    dashboard = open_dashboard(None)
    page = dashboard.open("/runs?search=base", heading="Sign in")
    fill_in(page, served.token)
    dashboard.settled(heading="Runs")
    assert page.url == f"{served.url}/ui/runs?search=base"


def test_the_cookie_is_out_of_reach_of_scripts_and_the_token_is_kept_nowhere(
    open_dashboard: OpenDashboard, served: Served
) -> None:
    dashboard = open_dashboard(None)
    fill_in(dashboard.open("/", heading="Sign in"), served.token)
    page = dashboard.settled(heading="Overview")
    (cookie,) = dashboard.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    kept: dict[str, Any] = page.evaluate(_WHAT_IS_KEPT)
    assert (kept["cookie"], kept["local"], kept["session"]) == ("", {}, {})
    assert served.token not in str(kept)
    assert cookie["value"] not in str(kept)
    assert csrf_of(page) not in str(kept)


@pytest.mark.parametrize("token", ["shardkeep_" + "0" * 33, "<img src=x onerror=alert(1)>"], ids=["unknown", "markup"])
def test_a_wrong_token_is_refused_with_the_request_id(
    open_dashboard: OpenDashboard, served: Served, token: str
) -> None:
    dashboard = open_dashboard(None)
    page = dashboard.open("/", heading="Sign in")
    with page.expect_response("**/v1/sign-in") as answered:
        fill_in(page, token)
    notice = page.get_by_role("alert")
    expect(notice).to_contain_text("token_invalid")
    expect(notice).to_contain_text(answered.value.headers["x-request-id"])
    assert dashboard.context.cookies() == []
    fill_in(page, served.token)
    dashboard.settled(heading="Overview")


def test_signing_out_ends_it_here_and_at_the_service(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs", heading="Runs")
    cookies = dashboard.context.cookies()
    page.get_by_role("button", name="Sign out").click()
    dashboard.settled(heading="Sign in")
    assert dashboard.context.cookies() == []
    page.go_back()
    dashboard.settled(heading="Sign in")
    dashboard.context.add_cookies([{key: cookies[0][key] for key in ("name", "value", "domain", "path")}])  # type: ignore[list-item]
    assert ask(page, "GET", "/v1/projects") == (401, "sign_in_ended")


def test_a_sign_in_ends_with_its_token_and_the_page_says_so(open_dashboard: OpenDashboard, served: Served) -> None:
    with served.connect() as client:
        access = AccessClient(client.service.transport)
        made = access.create_token(CreateToken(name="short-lived", scope="read"))
        dashboard = open_dashboard(made.token)
        ask_only_when_told(dashboard.page)
        page = dashboard.open("/runs", heading="Runs")
        access.revoke_token(made.info.id)
    page.get_by_role("link", name="Integrity").click()
    dashboard.settled(heading="Sign in")
    fill_in(page, served.token)
    dashboard.settled(heading="Integrity")


def test_the_next_reader_sees_nothing_of_what_the_last_one_saw(open_dashboard: OpenDashboard, served: Served) -> None:
    with served.connect() as client:
        access = AccessClient(client.service.transport)
        made = access.create_token(CreateToken(name="of all projects", scope="read"))
        dashboard = open_dashboard(made.token)
        page = dashboard.open("/projects", heading="Projects")
        expect(page.get_by_role("rowheader", name="spare")).to_be_visible()
        access.revoke_token(made.info.id)
    page.get_by_role("tab", name="Deleted").click()
    dashboard.settled(heading="Sign in")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    projects = re.compile(r"/v1/projects(\?|$)")
    page.route(projects, hold)
    fill_in(page, served.filled.tokens.bound)
    expect(page.get_by_role("heading", level=1)).to_have_text("Projects")
    page.get_by_role("tab", name="In use").click()
    expect(page.locator("main p[role=status]")).to_be_visible()
    assert "spare" not in page.locator("main").inner_text()
    for route in held:
        route.continue_()
    page.unroute(projects)
    expect(page.get_by_role("rowheader")).to_have_text(["demo"])


@pytest.mark.parametrize("whose", ["the same token", "another token"])
def test_after_a_sign_in_in_another_tab_this_one_works_for_who_signed_in(
    open_dashboard: OpenDashboard, served: Served, whose: str
) -> None:
    dashboard = open_dashboard()
    page = dashboard.open(f"/checkpoints/{served.filled.off_line}", heading=re.compile("^Step"))
    dashboard.sign_in(served.token if whose == "the same token" else served.filled.tokens.write)
    pin_it(page)
    if whose == "the same token":
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("csrf_missing")
        page.get_by_role("dialog").get_by_role("button", name="Pin", exact=True).click()
    else:
        expect(page.get_by_text("this page is theirs now")).to_be_visible()  # for some seconds
        expect(page.get_by_label("Signed in")).to_contain_text("writer")
        dashboard.settled()
        pin_it(page)
    page.get_by_role("button", name="Unpin").click()
    expect(page.get_by_role("button", name="Pin", exact=True)).to_be_visible()


def pin_it(page: Page) -> None:
    page.get_by_role("button", name="Pin", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Pin", exact=True).click()


@pytest.mark.parametrize("path", ["/", "/integrity", "/retention/demo"])
def test_a_job_s_token_is_told_what_it_sees_and_led_to_its_run(
    open_dashboard: OpenDashboard, served: Served, path: str
) -> None:
    dashboard = open_dashboard(served.filled.tokens.job)
    page = dashboard.open(path)
    notice = page.get_by_role("alert")
    expect(notice).to_have_count(1)
    expect(notice).to_contain_text(re.compile("request req_|request [0-9a-f]"))
    expect(page.get_by_text("it sees run demo/transformer and nothing else")).to_be_visible()
    expect(page.get_by_text("shardkeep token create --scope read --project demo")).to_be_visible()
    expect(page.get_by_label("Window")).to_have_count(0)
    page.get_by_role("link", name="Go to run demo/transformer").click()
    dashboard.settled(heading="demo/transformer")
    page.get_by_role("link", name="Runs", exact=True).first.click()
    dashboard.settled(heading="Runs")
    expect_rows(page, "Runs", ["demo/transformer"])


def test_a_request_without_the_csrf_word_changes_nothing(dashboard: Dashboard, served: Served) -> None:
    """A script that runs on our own origin and cannot read our answers gets no further than one elsewhere."""
    page = dashboard.open("/", heading="Overview")
    path = f"/v1/checkpoints/{served.filled.first}/tags/stolen"
    assert ask(page, "PUT", path) == (403, "csrf_missing")
    assert ask(page, "PUT", path, **{"x-shardkeep-csrf": "0" * 64}) == (403, "csrf_missing")
    with served.connect() as client:
        assert client.checkpoint(served.filled.first).tags == ["release-1"]
    assert ask(page, "PUT", path, **{"x-shardkeep-csrf": csrf_of(page)})[0] == 200


def test_the_service_refuses_what_a_reader_may_not_do_whatever_the_page_sends(
    open_dashboard: OpenDashboard, served: Served
) -> None:
    dashboard = open_dashboard(served.filled.tokens.read)
    page = dashboard.open("/", heading="Overview")
    word = {"x-shardkeep-csrf": csrf_of(page), "if-match": '"1"'}
    checkpoint = f"/v1/checkpoints/{served.filled.latest}"
    for method, path in [
        ("DELETE", checkpoint),
        ("PUT", f"{checkpoint}/pin"),
        ("PUT", f"{checkpoint}/tags/stolen"),
        ("POST", "/v1/projects/demo/runs/transformer/save-request"),
        ("POST", "/v1/projects/demo/retention/apply"),
        ("GET", "/v1/tokens?limit=1"),
        ("GET", "/v1/audit"),
        ("GET", "/v1/system"),
    ]:
        assert ask(page, method, path, **word) == (403, "scope_too_narrow"), (method, path)


def test_a_token_of_one_project_shows_that_one_only(open_dashboard: OpenDashboard, served: Served) -> None:
    dashboard = open_dashboard(served.filled.tokens.bound)
    page = dashboard.open("/", heading="Overview")
    names = page.evaluate(
        "fetch('/v1/projects').then(answer => answer.json()).then(body => body.items.map(p => p.name))"
    )
    assert names == ["demo"]
    assert ask(page, "GET", "/v1/projects/spare") == (404, "unknown_project")
