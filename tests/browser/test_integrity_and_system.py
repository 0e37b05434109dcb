"""What was found damaged and whom it harms; what runs, on what, and with which settings."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import Dashboard
from tests.browser.served import Served
from tests.browser.tables import row_names, table


def test_E204_what_the_scrub_found_damaged_is_shown_with_the_checkpoints_it_harms(
    dashboard: Dashboard, served: Served
) -> None:
    page = dashboard.open("/integrity", heading="Integrity")
    finding = table(page, "Open findings").locator("tbody tr")
    expect(finding).to_have_count(1)
    expect(finding).to_contain_text(served.filled.damaged_digest[:12])
    expect(finding).to_contain_text("Damaged")
    finding.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(served.filled.damaged))
    dashboard.settled()
    expect(page.get_by_text("Quarantined").first).to_be_visible()


def test_how_much_was_scrubbed_is_told(dashboard: Dashboard) -> None:
    page = dashboard.open("/integrity", heading="Integrity")
    expect(page.get_by_text("shardkeep-service scrub --all")).to_be_visible()
    expect(page.get_by_role("heading", name="Scrub coverage")).to_be_visible()
    page.get_by_role("tab", name="Resolved").click()
    expect(page.get_by_text("No finding was resolved")).to_be_visible()
    expect(page).to_have_url(re.compile("show=resolved"))


def test_a_token_of_one_project_is_not_told_about_the_bucket(open_dashboard: OpenDashboard, served: Served) -> None:
    page = open_dashboard(served.filled.tokens.bound).open("/integrity", heading="Integrity")
    expect(table(page, "Open findings").locator("tbody tr")).to_have_count(1)
    expect(page.get_by_text("Needs a token of all projects", exact=False)).to_be_visible()


def test_what_runs_is_told_without_a_secret(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open("/system", heading="System")
    for heading in ("Service", "Database", "Object store"):
        expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    expect(page.get_by_text("sqlite", exact=False).first).to_be_visible()
    expect(page.get_by_text("shardkeep-service doctor")).to_be_visible()  # no ability of a file system is probed
    assert served.token not in page.content()


def test_settings_are_searched_in_the_url(dashboard: Dashboard) -> None:
    page = dashboard.open("/system", heading="System")
    page.get_by_label("Search settings").fill("lease_seconds")
    expect(page).to_have_url(re.compile("search=lease_seconds"))
    page.reload()
    dashboard.settled()
    names = row_names(page, "Settings")
    assert "lease_seconds" in names
    assert all("lease_seconds" in name for name in names)
    changed = table(page, "Settings").locator("tbody tr").filter(has_text="1000000")
    expect(changed.first).to_contain_text("set")


def test_several_words_are_typed_into_the_search_with_a_pause_after_a_blank(dashboard: Dashboard) -> None:
    page = dashboard.open("/system", heading="System")
    field = page.get_by_label("Search settings")
    field.press_sequentially("scrub ")
    expect(page).to_have_url(re.compile("search=scrub$"))
    field.press_sequentially("seconds")
    expect(page).to_have_url(re.compile(r"search=scrub(\+|%20)seconds$"))
    expect(field).to_have_value("scrub seconds")


def test_what_the_system_page_links_to_answers(dashboard: Dashboard) -> None:
    page = dashboard.open("/system", heading="System")
    for link in page.locator("main a[href^='/']").all():
        address = link.get_attribute("href")
        assert address is not None
        assert page.evaluate("path => fetch(path).then(answer => answer.status)", address) == 200, address


def test_a_reader_is_told_what_the_page_needs(open_dashboard: OpenDashboard, served: Served) -> None:
    page = open_dashboard(served.filled.tokens.read).open("/system", heading="System")
    expect(page.get_by_text("shardkeep token create --scope admin")).to_be_visible()
