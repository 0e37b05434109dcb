"""What is shown where there is nothing, and where something went wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import SIZES, Dashboard
from tests.browser.refusals import REQUEST_ID, refuse
from tests.browser.screenshots import take_screenshot
from tests.browser.traffic import ask_only_when_told
from tests.service_process import ServiceProcess

WITH_COMMANDS: Final = ("/", "/runs", "/runs?tab=deleted", "/projects", "/saves", "/integrity", "/system")
UNTOUCHED_WITH_COMMANDS: Final = tuple(f"/runs/demo/untouched{tab}" for tab in ("", "?view=times", "?view=attempts"))
ASKING: Final = {
    "/": "**/v1/overview*",
    "/runs": "**/v1/runs*",
    "/saves": "**/v1/saves*",
    "/integrity": "**/v1/integrity",
    "/access": "**/v1/tokens?*",
    "/projects": "**/v1/projects*",
    "/audit": "**/v1/audit*",
    "/system": "**/v1/system",
    "/retention/demo": "**/v1/projects/demo/retention",
    "/runs/demo/transformer": "**/v1/projects/demo/runs/transformer",
}
"""What each page asks for first."""


@pytest.fixture(scope="module")
def new_service(tmp_path_factory: pytest.TempPathFactory, built_dashboard: None) -> Iterator[ServiceProcess]:
    """A service that nobody has used yet."""
    with ServiceProcess(tmp_path_factory.mktemp("new") / "service") as process:
        yield process


@pytest.mark.parametrize("path", WITH_COMMANDS)
def test_an_empty_page_names_the_command_that_would_fill_it(
    browser: Browser, new_service: ServiceProcess, path: str
) -> None:
    dashboard = Dashboard(browser, new_service.url)
    dashboard.sign_in(new_service.token)
    page = dashboard.open(path)
    expect(page.locator("main pre").filter(has_text=re.compile(r"^shardkeep(-service)? ")).first).to_be_visible()
    for size, pixels in SIZES.items():
        dashboard.set_size(pixels)
        take_screenshot(page, f"empty-{re.sub(r'[^a-z]+', '-', path).strip('-') or 'overview'}-{size}-light")
    dashboard.close()


@pytest.mark.parametrize("path", ["/", "/integrity"])
def test_of_nothing_nothing_is_verified(browser: Browser, new_service: ServiceProcess, path: str) -> None:
    dashboard = Dashboard(browser, new_service.url)
    dashboard.sign_in(new_service.token)
    meter = dashboard.open(path).get_by_role("meter")
    expect(meter).to_have_attribute("aria-valuenow", "0")
    expect(meter).to_have_attribute("aria-valuetext", "nothing is stored yet")
    dashboard.close()


@pytest.mark.parametrize("path", UNTOUCHED_WITH_COMMANDS)
def test_a_run_without_checkpoints_names_the_command_that_makes_one(dashboard: Dashboard, path: str) -> None:
    page = dashboard.open(path, heading="demo/untouched")
    expect(page.locator("main pre").filter(has_text="shardkeep push ./weights demo/untouched").first).to_be_visible()


@pytest.mark.parametrize("path", ASKING)
def test_what_went_wrong_is_said_with_the_request_id_and_can_be_tried_again(dashboard: Dashboard, path: str) -> None:
    ask_only_when_told(dashboard.page)
    refuse(dashboard.page, ASKING[path])
    page = dashboard.open(path)
    notice = page.get_by_role("alert").first
    for text in ("Storage unavailable", "the store does not answer", "storage_unavailable", REQUEST_ID):
        expect(notice).to_contain_text(text)
    take_screenshot(page, f"failing-{path.strip('/').replace('/', '-') or 'overview'}-desktop-light")
    page.unroute(ASKING[path])
    page.get_by_role("button", name="Try again").first.click()
    expect(page.get_by_text(REQUEST_ID)).to_have_count(0)


def test_a_service_that_is_gone_is_told_from_one_that_refuses(open_dashboard: OpenDashboard) -> None:
    dashboard = open_dashboard()
    page = dashboard.open("/runs", heading="Runs")
    page.route("**/v1/**", lambda route: route.abort("connectionrefused"))
    page.get_by_role("link", name="Audit log").click()
    expect(page.get_by_role("alert").first).to_contain_text("The service was not reached")
    page.unroute("**/v1/**")
    page.get_by_role("button", name="Try again").first.click()
    expect(page.get_by_role("table", name="Changes, newest first")).to_be_visible()


def test_an_address_where_nothing_lives_says_so(dashboard: Dashboard) -> None:
    page = dashboard.open("/no/such/page", heading="No such page")
    page.get_by_role("link", name="Go to the overview").click()
    dashboard.settled(heading="Overview")
