"""The overview: of all projects or of one, whose figures lead to what they count."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import DESKTOP, PHONE, Dashboard
from tests.browser.served import Served
from tests.browser.tables import table

DAY_SECONDS: Final = 86_400
_LABELS: Final = """
all => all.map(one => {
  const {left, right} = one.getBoundingClientRect()
  return {text: one.textContent, at: one.dataset.at, left, right}
})
"""


def choose(page: Page, project: str) -> None:
    field = page.get_by_label("Project", exact=True)
    field.fill(project)
    field.press("Enter")


def figure(page: Page, name: str) -> Locator:
    """A figure at the top."""
    return page.locator("main dl > div").filter(has=page.get_by_text(name, exact=True)).locator("dd").first


def test_the_figures_of_one_project_lead_to_what_they_count_of_that_one(dashboard: Dashboard) -> None:
    page = dashboard.open("/", heading="Overview")
    runs_of_all = figure(page, "Runs").inner_text()
    choose(page, "demo")
    expect(page).to_have_url(re.compile(r"project=demo"))
    expect(figure(page, "Runs")).not_to_have_text(runs_of_all)
    runs, saving, failed = (figure(page, name).inner_text() for name in ("Runs", "Saving now", "Failed saves"))

    page.locator("main dl").get_by_role("link", name=runs, exact=True).first.click()
    dashboard.settled(heading="Runs")
    assert parse_qs(urlsplit(page.url).query)["project"] == ["demo"]
    expect(table(page, "Runs").locator("tbody tr")).to_have_count(int(runs))
    page.go_back()
    dashboard.settled(heading="Overview")
    page.get_by_role("link", name="Saves in progress").last.click()
    dashboard.settled(heading="Saves in progress")
    assert parse_qs(urlsplit(page.url).query)["project"] == ["demo"]
    expect(page.get_by_label("Project", exact=True)).to_have_value("demo")
    assert int(saving) == 1
    page.go_back()
    dashboard.settled(heading="Overview")
    page.locator("main dl").get_by_role("link", name=failed, exact=True).last.click()
    dashboard.settled(heading="Audit log")
    entries = table(page, "Changes, newest first").locator("tbody th")
    expect(entries).to_have_text(["checkpoint.abort"] * int(failed))


def test_integrity_on_the_overview_is_of_the_project_that_is_chosen(dashboard: Dashboard) -> None:
    page = dashboard.open("/", heading="Overview")
    with page.expect_response(re.compile(r"/v1/integrity\?project=spare$")) as answered:
        choose(page, "spare")
    assert answered.value.json()["stored_bytes"] == 0


def test_another_project_s_figures_are_not_shown_while_they_are_on_their_way(dashboard: Dashboard) -> None:
    page = dashboard.open("/?project=demo", heading="Overview")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v1/overview?*", hold)
    choose(page, "spare")
    expect(page.locator("main p[role=status]")).to_be_visible()
    expect(page.get_by_text("Failed saves")).to_have_count(0)
    for route in held:
        route.continue_()
    page.unroute("**/v1/overview?*")
    dashboard.settled()
    expect(figure(page, "Failed saves")).to_have_text("0")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Europe/Berlin"])
@pytest.mark.parametrize("hours", [168, 720, 2160])
def test_the_days_below_the_bars_are_evenly_apart_and_named_once(
    open_dashboard: OpenDashboard, size: tuple[int, int], zone: str, hours: int
) -> None:
    dashboard = open_dashboard(size=size)
    session = dashboard.context.new_cdp_session(dashboard.page)
    session.send("Emulation.setTimezoneOverride", {"timezoneId": zone})
    page = dashboard.open(f"/?hours={hours}", heading="Overview")
    labels = page.locator("svg text[data-at]")
    expect(labels.first).to_be_visible()
    drawn = labels.evaluate_all(_LABELS)  # at once: by a new width all are drawn anew
    texts, at = [str(one["text"]) for one in drawn], [float(one["at"]) for one in drawn]
    assert len(texts) >= 2
    assert len(set(texts)) == len(texts)
    # A day of the reader's clock may have 23 or 25 hours.
    days = {round((later - earlier) / DAY_SECONDS) for earlier, later in itertools.pairwise(at)}
    assert len(days) == 1, (texts, [datetime.fromtimestamp(each, UTC) for each in at])
    assert all(one["right"] < other["left"] for one, other in itertools.pairwise(drawn)), texts


def test_a_job_s_token_has_no_window_to_choose(open_dashboard: OpenDashboard, served: Served) -> None:
    page = open_dashboard(served.filled.tokens.job).open("/", heading="Overview")
    expect(page.get_by_label("Window")).to_have_count(0)
    expect(page.get_by_label("Project", exact=True)).to_have_count(0)
