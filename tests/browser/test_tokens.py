"""Tokens: shown once, found again by their first characters, revoked."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

import shardkeep as sk
from shardkeep.connection.access_client import AccessClient
from shardkeep.errors import Unauthenticated
from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import Dashboard
from tests.browser.launches import MARKUP
from tests.browser.served import Served
from tests.browser.tables import row, row_names

TABLE = "Tokens, newest first"


def make(page: Page, name: str, *, scope: str = "read") -> str:
    """The text of a new token, as the dialog shows it once."""
    page.get_by_role("button", name="Create token").click()
    dialog = page.get_by_role("dialog", name="Create a token")
    dialog.get_by_label("Name", exact=True).fill(name)
    dialog.get_by_label("Scope").select_option(scope)
    dialog.get_by_label("Projects").fill("demo")
    dialog.get_by_role("button", name="Create").click()
    shown = page.get_by_role("dialog", name=f"Token {name}")
    text = shown.get_by_label("token", exact=True).inner_text().strip()
    shown.get_by_role("button", name="I have stored it").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    return text


def works(served: Served, token: str) -> bool:
    with sk.connect(served.url, token) as client:
        try:
            AccessClient(client.service.transport).token()
        except Unauthenticated:
            return False
    return True


def test_a_token_is_shown_once_works_and_is_refused_once_it_is_revoked(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open("/access", heading="Tokens")
    name = f"for {MARKUP}"
    text = make(page, name)
    assert works(served, text)
    assert text not in page.content()
    expect(row(page, TABLE, name)).to_contain_text("demo")
    assert text not in str(page.evaluate("({...localStorage, ...sessionStorage, state: history.state})"))
    page.reload()
    dashboard.settled()
    assert text not in page.content()

    page.get_by_role("button", name=f"Revoke {name}", exact=True).click()
    dialog = page.get_by_role("dialog", name=f"Revoke {name}?")
    expect(dialog).to_contain_text("It minted no token for jobs")
    dialog.get_by_role("button", name="Revoke token").click()
    expect(row(page, TABLE, name)).to_have_count(0)
    assert not works(served, text)


def test_what_cannot_be_used_any_more_is_listed_when_asked_for(dashboard: Dashboard) -> None:
    page = dashboard.open("/access", heading="Tokens")
    name = f"revoked {MARKUP}"
    assert name not in row_names(page, TABLE)
    page.get_by_label("Also expired and revoked").check()
    expect(row(page, TABLE, name)).to_contain_text("Revoked")
    expect(page).to_have_url(re.compile("all=true"))
    page.reload()
    expect(row(page, TABLE, name)).to_be_visible()
    expect(page.get_by_role("button", name=f"Revoke {name}", exact=True)).to_be_disabled()


def test_a_token_for_the_jobs_of_one_run_is_minted(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open("/access", heading="Tokens")
    page.get_by_role("button", name="Create token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("For", exact=True).select_option("job")
    dialog.get_by_label("Name", exact=True).fill("nightly")
    dialog.get_by_label("Run", exact=True).fill("no run")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_label("Run", exact=True)).to_have_attribute("aria-invalid", "true")
    dialog.get_by_label("Run", exact=True).fill("demo/transformer")
    dialog.get_by_role("button", name="Create").click()
    shown = page.get_by_role("dialog", name="Token nightly")
    with sk.connect(served.url, shown.get_by_label("token", exact=True).inner_text().strip()) as client:
        info = AccessClient(client.service.transport).token()
    assert (info.run, info.scope) == ("transformer", "write")


def test_a_token_that_the_browser_does_not_let_be_copied_is_selected_and_that_is_said_in_the_dialog(
    dashboard: Dashboard,
) -> None:
    dashboard.page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    shown = make_and_look(dashboard, "by hand")
    text = shown.get_by_label("token", exact=True).inner_text().strip()
    shown.get_by_role("button", name="Copy token").click()
    expect(shown.get_by_role("status")).to_contain_text("did not let the token be copied")
    assert dashboard.page.evaluate("getSelection().toString().trim()") == text


def test_esc_does_not_close_what_is_shown_once_before_it_was_copied(dashboard: Dashboard) -> None:
    dashboard.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown = make_and_look(dashboard, "kept")
    for _ in range(3):
        dashboard.page.keyboard.press("Escape")
    expect(shown.get_by_role("alert")).to_contain_text("It was not copied yet")
    text = shown.get_by_label("token", exact=True).inner_text().strip()
    shown.get_by_role("button", name="Copy token").click()
    expect(shown.get_by_role("status")).to_have_text("Copied the token.")
    assert dashboard.page.evaluate("navigator.clipboard.readText()") == text
    dashboard.page.keyboard.press("Escape")
    expect(dashboard.page.get_by_role("dialog")).to_have_count(0)
    expect(dashboard.page.get_by_text("The token is made.")).to_be_visible()  # said once it can be heard


def make_and_look(dashboard: Dashboard, name: str) -> Locator:
    """The dialog that shows a new token."""
    page = dashboard.open("/access", heading="Tokens")
    page.get_by_role("button", name="Create token").click()
    dialog = page.get_by_role("dialog", name="Create a token")
    dialog.get_by_label("Name", exact=True).fill(name)
    dialog.get_by_role("button", name="Create").click()
    shown = page.get_by_role("dialog", name=f"Token {name}")
    expect(shown).to_be_visible()
    return shown


def test_tokens_are_narrowed_to_those_that_may_see_a_project(dashboard: Dashboard) -> None:
    page = dashboard.open("/access", heading="Tokens")
    field = page.get_by_label("May see the project")
    field.fill("demo")
    field.press("Enter")
    expect(page).to_have_url(re.compile("project=demo"))
    expect(row(page, TABLE, "reader of demo")).to_be_visible()
    field.fill("spare")
    field.press("Enter")
    expect(row(page, TABLE, "reader of demo")).to_have_count(0)
    page.go_back()
    expect(field).to_have_value("demo")
    field.fill("")
    expect(page).not_to_have_url(re.compile("project="))


def test_a_reader_may_make_no_token_and_sees_none(open_dashboard: OpenDashboard, served: Served) -> None:
    page = open_dashboard(served.filled.tokens.read).open("/access", heading="Tokens")
    expect(page.get_by_role("button", name="Create token")).to_be_disabled()
    expect(page.get_by_text("shardkeep token create --scope admin")).to_be_visible()
    expect(page.get_by_role("table")).to_have_count(0)


@pytest.mark.parametrize("lifetime", ["soon", "-1d", "20000d"])
def test_a_lifetime_that_cannot_be_is_told(dashboard: Dashboard, lifetime: str) -> None:
    page = dashboard.open("/access", heading="Tokens")
    page.get_by_role("button", name="Create token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("x")
    dialog.get_by_label("Expires in").fill(lifetime)
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_label("Expires in")).to_have_attribute("aria-invalid", "true")
