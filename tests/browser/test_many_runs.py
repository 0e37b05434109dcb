"""With 10,000 runs and 100,000 checkpoints each page asks for a page of them, however it filters and sorts.

Prints how long each list took; what it may take is not tested here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from tests.browser.dashboard import Dashboard
from tests.browser.tables import table
from tests.servers.filled_catalogue import Catalogue, fill
from tests.service_process import ServiceProcess

MOST_ITEMS: Final = 200
"""A page of a list never has more."""
PROJECTS: Final = 250
"""More than a page of them."""
OFFERED: Final = 20
"""Names that a field suggests at once."""
ENV: Final = {
    # No object is stored: nothing may look for one.
    "SHARDKEEP_SERVICE_SCRUB_BYTES_PER_SECOND": "0",
    "SHARDKEEP_SERVICE_HOUSEKEEPING_SECONDS": "1000000",
    "SHARDKEEP_SERVICE_COLLECTION_SECONDS": "1000000",
    "SHARDKEEP_SERVICE_RETENTION_SECONDS": "1000000",
    "SHARDKEEP_SERVICE_LEASE_SECONDS": "1000000",
}


class Lists:
    """Every list that a page asks for: how many items came, and how long each took.

    Bodies are gone once another document is loaded, so a test goes on by links from its first page.
    """

    def __init__(self, page: Page) -> None:
        self.items: dict[str, int] = {}
        self.milliseconds: dict[str, float] = {}
        self._answers: list[Response] = []
        page.on("response", self._note)

    def _note(self, response: Response) -> None:
        if "/v1/" in response.url:
            self._answers.append(response)

    def read(self) -> None:
        """Takes in what was answered so far."""
        answers, self._answers = self._answers, []
        for answer in answers:
            if not answer.ok or answer.request.failure is not None:
                continue
            body = answer.json()
            path = re.sub(r"^https?://[^/]+", "", answer.url)
            if isinstance(body, dict) and "items" in body:
                self.items[path] = len(body["items"])
                self.milliseconds[path] = answer.request.timing["responseEnd"]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, built_dashboard: None) -> Iterator[tuple[ServiceProcess, Catalogue]]:
    data_dir = tmp_path_factory.mktemp("many") / "service"
    data_dir.mkdir()
    catalogue = fill(data_dir / "shardkeep.db", projects=PROJECTS)
    with ServiceProcess(data_dir, env=ENV) as process:
        yield process, catalogue


@pytest.fixture
def dashboard(browser: Browser, many: tuple[ServiceProcess, Catalogue]) -> Iterator[Dashboard]:
    process, _ = many
    opened = Dashboard(browser, process.url)
    opened.sign_in(process.token)
    yield opened
    opened.close()


@pytest.fixture
def lists(dashboard: Dashboard) -> Iterator[Lists]:
    """Asserts at the end that no list was longer than a page."""
    watched = Lists(dashboard.page)
    yield watched
    watched.read()
    assert watched.items
    for path, milliseconds in watched.milliseconds.items():
        print(f"{milliseconds:7.0f} ms {watched.items[path]:4} items {path[:110]}")
    too_long = {path: count for path, count in watched.items.items() if count > MOST_ITEMS}
    assert not too_long


def shown(page: Page) -> list[str]:
    return [str(each) for each in table(page, "Runs").locator("tbody th").all_inner_texts()]


def test_runs_are_paged_filtered_and_sorted_by_the_service(dashboard: Dashboard, lists: Lists) -> None:
    started = time.monotonic()
    page = dashboard.open("/runs", heading="Runs")
    print(f"{time.monotonic() - started:.2f} s until the first page of runs is shown")
    first = shown(page)
    assert len(first) == 50
    page.get_by_role("button", name="Next page").click()
    expect(page).to_have_url(re.compile("cursor="))
    expect(table(page, "Runs").locator("tbody th").first).not_to_have_text(first[0])
    assert not set(shown(page)) & set(first)
    page.go_back()
    expect(table(page, "Runs").locator("tbody th").first).to_have_text(first[0])

    for column, sort in [
        ("Last step", "last_step"),
        ("Stored", "stored_bytes"),
        ("Created", "created"),
        ("Run", "name"),
    ]:
        with page.expect_response(re.compile(f"/v1/runs.*sort={sort}")):
            table(page, "Runs").get_by_role("button", name=column, exact=True).click()
        dashboard.settled()
        assert len(shown(page)) == 50

    page.get_by_label("Search").fill("-sft-00")
    expect(page).to_have_url(re.compile("search=-sft-00"))
    expect(table(page, "Runs").get_by_text("-sft-00").first).to_be_visible()
    page.get_by_label("Search").fill("no run is called so")
    expect(page.get_by_text("No run matches the filters")).to_be_visible()
    page.get_by_label("Search").fill("")
    page.get_by_label("State", exact=True).select_option("saving")
    expect(page).to_have_url(re.compile("state=saving"))
    expect(table(page, "Runs").locator("tbody tr").filter(has_text="Idle")).to_have_count(0)


def test_a_run_of_thousands_of_checkpoints_asks_for_pages_of_them(
    dashboard: Dashboard, lists: Lists, many: tuple[ServiceProcess, Catalogue]
) -> None:
    _, catalogue = many
    path = f"/runs/{catalogue.long_project}/{catalogue.long_run}"
    page = dashboard.open(path, heading=path.removeprefix("/runs/"))
    rows = table(page, "Checkpoints of the run, newest first").locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("navigation", name="Pages of the list").last.get_by_role("button", name="Next page").click()
    expect(page).to_have_url(re.compile("cursor="))
    expect(rows).to_have_count(50)
    page.get_by_role("tab", name="Sizes and times").click()
    expect(page.get_by_role("heading", name="Ranks by save")).to_be_visible()
    page.get_by_role("tab", name="Attempts").click()
    expect(table(page, "Attempts, newest first")).to_be_visible()


@pytest.mark.parametrize("path", ["/", "/saves", "/projects", "/access", "/audit", "/integrity"])
def test_every_other_list_is_a_page_too(dashboard: Dashboard, lists: Lists, path: str) -> None:
    started = time.monotonic()
    dashboard.open(path)
    print(f"{time.monotonic() - started:.2f} s until {path} is shown")


@pytest.mark.parametrize("path", ["/", "/runs", "/access", "/saves"])
def test_any_project_is_chosen_by_part_of_its_name(
    dashboard: Dashboard, lists: Lists, many: tuple[ServiceProcess, Catalogue], path: str
) -> None:
    last = max(many[1].projects)
    page = dashboard.open(path)
    field = page.get_by_label("May see the project" if path == "/access" else "Project", exact=True)
    field.press_sequentially(last[-3:], delay=10)
    expect(page.locator(f"datalist option[value='{last}']")).to_be_attached()
    field.fill(last)
    expect(page).to_have_url(re.compile(f"project={last}"))
    dashboard.settled()
    lists.read()
    chosen_from = [count for asked, count in lists.items.items() if asked.startswith("/v1/projects?")]
    assert 2 <= len(chosen_from) <= 5  # one for all, one for each text that was paused at: three letters, the whole
    assert max(chosen_from) <= OFFERED


def test_the_last_of_the_projects_is_found_without_paging(
    dashboard: Dashboard, lists: Lists, many: tuple[ServiceProcess, Catalogue]
) -> None:
    last = max(many[1].projects)
    page = dashboard.open("/projects", heading="Projects")
    page.get_by_label("Search", exact=True).fill(last[-3:])
    expect(table(page, "Projects, by name").get_by_role("rowheader", name=last)).to_be_visible()
