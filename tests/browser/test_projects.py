"""Projects: made, deleted and restored, and their quotas."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from shardkeep.connection.access_client import AccessClient
from shardkeep.protocol.messages import SetQuota
from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import Dashboard
from tests.browser.served import Served
from tests.browser.tables import row, table

LIVING, DELETED = "Projects, by name", "Deleted projects"


def create(page: Page, name: str) -> None:
    page.get_by_role("button", name="Create project").click()
    page.get_by_role("dialog").get_by_label("Name").fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Create").click()


def test_a_project_is_made_deleted_and_restored_under_another_name(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open("/projects", heading="Projects")
    create(page, "fresh")
    expect(row(page, LIVING, "fresh")).to_be_visible()
    page.get_by_role("button", name="Delete fresh", exact=True).click()
    dialog = page.get_by_role("dialog", name="Delete project fresh?")
    confirm = dialog.get_by_role("button", name="Delete project")
    expect(confirm).to_be_disabled()
    dialog.get_by_label("Type fresh to confirm").fill("fresh")
    confirm.click()
    expect(row(page, LIVING, "fresh")).to_have_count(0)
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_be_focused()  # what opened the dialog is gone

    page.get_by_role("tab", name="Deleted").click()
    expect(page).to_have_url(re.compile("deleted=true"))
    page.get_by_role("button", name="Restore fresh").click()
    page.get_by_role("dialog").get_by_label("Name").fill("brought-back")
    page.get_by_role("dialog").get_by_role("button", name="Restore project").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    with served.connect() as client:
        names = {project.name for project in client.projects()}
    assert "brought-back" in names
    assert "fresh" not in names


def test_the_quota_of_a_project_goes_with_it(dashboard: Dashboard) -> None:
    page = dashboard.open("/projects", heading="Projects")
    create(page, "brief")
    page.get_by_role("link", name="Quota of brief").click()
    expect(page.get_by_role("heading", name="Quota of brief")).to_be_visible()
    page.get_by_role("button", name="Delete brief", exact=True).click()
    page.get_by_role("dialog").get_by_label("Type brief to confirm").fill("brief")
    page.get_by_role("dialog").get_by_role("button", name="Delete project").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("heading", name="Quota of brief")).to_have_count(0)
    expect(page).not_to_have_url(re.compile("project="))
    expect(page.get_by_role("alert")).to_have_count(0)


def test_projects_are_searched_by_the_service_in_the_url(dashboard: Dashboard) -> None:
    page = dashboard.open("/projects", heading="Projects")
    page.get_by_label("Search", exact=True).fill("SPA")
    expect(page).to_have_url(re.compile("search=SPA"))
    expect(table(page, LIVING).locator("tbody th")).to_have_text(["spare"])
    page.reload()
    dashboard.settled()
    expect(table(page, LIVING).locator("tbody th")).to_have_text(["spare"])
    page.get_by_label("Search", exact=True).fill("nobody has called one so")
    expect(page.get_by_text("No project is called so")).to_be_visible()


def test_a_name_that_cannot_be_is_refused_before_it_is_sent(dashboard: Dashboard) -> None:
    page = dashboard.open("/projects", heading="Projects")
    create(page, "<img src=x onerror=alert(1)>")
    field = page.get_by_role("dialog").get_by_label("Name")
    expect(field).to_have_attribute("aria-invalid", "true")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Create project")).to_be_focused()


def test_a_project_that_is_in_use_is_deleted_only_when_that_is_said(dashboard: Dashboard) -> None:
    page = dashboard.open("/projects", heading="Projects")
    page.get_by_role("button", name="Delete demo", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("committed checkpoints")
    dialog.get_by_label("Type demo to confirm").fill("demo")
    dialog.get_by_role("button", name="Delete project").click()
    expect(dialog.get_by_role("alert")).to_contain_text(re.compile("checkpoint_pinned|run_in_use"))
    dialog.get_by_role("button", name="Cancel").click()
    expect(row(page, LIVING, "demo")).to_be_visible()


def test_a_quota_is_shown_set_and_lifted(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open("/projects", heading="Projects")
    page.get_by_role("link", name="Quota of demo").click()
    expect(page).to_have_url(re.compile("project=demo"))
    expect(page.get_by_text("of 1,000", exact=False)).to_be_visible()
    page.get_by_label("Most bytes").fill("10 furlongs")
    page.get_by_role("button", name="Set quota").click()
    expect(page.get_by_label("Most bytes")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Most bytes").fill("2TB")
    page.get_by_label("Most checkpoints").fill("")
    page.get_by_role("button", name="Set quota").click()
    expect(page.get_by_text("The quota of demo is set.")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Most bytes")).to_have_value(re.compile("^2 ?TB$"))
    with served.connect() as client:
        quota = AccessClient(client.service.transport).quota("demo")
    assert (quota.max_bytes, quota.max_checkpoints) == (2 * 10**12, None)


def test_a_quota_that_somebody_else_changes_meanwhile_is_not_overwritten(dashboard: Dashboard, served: Served) -> None:
    with served.connect() as client:
        access = AccessClient(client.service.transport)
        access.set_quota("spare", SetQuota(max_bytes=10**12))
        page = dashboard.open("/projects?project=spare", heading="Projects")
        page.get_by_label("Most bytes").fill("2TB")
        access.set_quota("spare", SetQuota(max_bytes=3 * 10**12))
        page.get_by_role("button", name="Set quota").click()
        expect(page.get_by_role("alert")).to_contain_text("Changed meanwhile, look again")
        expect(page.get_by_label("Most bytes")).to_have_value("2TB")
        assert access.quota("spare").max_bytes == 3 * 10**12
        page.get_by_role("button", name="Discard edits").click()
        expect(page.get_by_label("Most bytes")).to_have_value(re.compile("^3 ?TB$"))
        page.get_by_label("Most bytes").fill("4TB")
        page.get_by_role("button", name="Set quota").click()
        expect(page.get_by_text("The quota of spare is set.")).to_be_visible()
        assert access.quota("spare").max_bytes == 4 * 10**12


@pytest.mark.parametrize("button", ["Create project", "Delete demo", "Set quota"])
def test_one_who_may_not_is_told_why(open_dashboard: OpenDashboard, served: Served, button: str) -> None:
    page = open_dashboard(served.filled.tokens.read).open("/projects?project=demo", heading="Projects")
    found = page.get_by_role("button", name=button, exact=True)
    expect(found).to_be_disabled()
    expect(found).to_have_accessible_description(re.compile("Needs a token with scope admin; this one has read."))


def test_what_retention_a_project_has_is_one_step_away(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open("/projects", heading="Projects")
    page.get_by_role("link", name="Retention of demo").click()
    dashboard.settled(heading="Retention of demo")
    page.go_back()
    dashboard.settled(heading="Projects")
    expect(table(page, LIVING)).to_be_visible()
    assert page.url == f"{served.url}/ui/projects"
