"""The audit log: filtered in the URL, unfolded, paged and exported."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import expect

from shardkeep.connection.access_client import AccessClient
from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import Dashboard
from tests.browser.launches import MARKUP
from tests.browser.served import Served
from tests.browser.tables import expect_only, table

TABLE = "Changes, newest first"


def test_entries_are_filtered_in_the_url(dashboard: Dashboard) -> None:
    page = dashboard.open("/audit", heading="Audit log")
    page.get_by_label("Action").fill("token.create")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile(r"action=token\.create"))
    expect_only(page, TABLE, "token.create")
    page.reload()
    expect_only(page, TABLE, "token.create")
    page.get_by_role("button", name="Show everything").click()
    expect(page).to_have_url(re.compile(r"/ui/audit$"))


def test_an_entry_unfolds_to_all_of_it_as_text(dashboard: Dashboard) -> None:
    page = dashboard.open("/audit?action=token.create", heading="Audit log")
    entry = table(page, TABLE).locator("tbody tr").filter(has_text=f"writer {MARKUP}")
    entry.locator("summary").click()
    details = entry.get_by_role("region")
    expect(details).to_contain_text(f'"name": "writer {MARKUP}"')
    entry.get_by_role("link", name="all on it").click()
    expect(page).to_have_url(re.compile("target=tok_"))


def test_older_entries_are_a_page_away_and_back_leads_back(dashboard: Dashboard) -> None:
    page = dashboard.open("/audit", heading="Audit log")
    newest = table(page, TABLE).locator("tbody tr").first.get_attribute("data-row")
    assert newest is not None
    page.get_by_role("button", name="Next page").click()
    expect(page).to_have_url(re.compile("cursor="))
    expect(table(page, TABLE).locator(f"tbody tr[data-row='{newest}']")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("button", name="First page")).to_be_enabled()
    page.go_back()
    expect(table(page, TABLE).locator(f"tbody tr[data-row='{newest}']")).to_have_count(1)


def test_what_is_found_is_exported_whole(dashboard: Dashboard, served: Served, tmp_path: Path) -> None:
    page = dashboard.open("/audit?action=checkpoint", heading="Audit log")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export what is found").click()
    assert download.value.suggested_filename.endswith(".jsonl")
    download.value.save_as(tmp_path / "audit.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    with served.connect() as client:
        asked = AccessClient(client.service.transport).audit({"action": "checkpoint"})
        ids = [entry.id for entry in asked]
    assert [line["id"] for line in lines] == ids[::-1]


def test_one_who_is_no_administrator_is_told_what_it_needs(open_dashboard: OpenDashboard, served: Served) -> None:
    page = open_dashboard(served.filled.tokens.write).open("/audit", heading="Audit log")
    expect(page.get_by_text("shardkeep token create --scope admin")).to_be_visible()
    expect(page.get_by_role("button", name="Export")).to_be_disabled()
