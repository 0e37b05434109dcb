"""Every page at every width and in both themes: usable by everyone, nothing overlaps, nothing is taken for markup.

Leaves a screenshot of each in `test-results/dashboard/`, to be looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import DESKTOP, PHONE
from tests.browser.every_page import EVERY_PAGE, PageAt
from tests.browser.layout import heading_faults, layout_faults
from tests.browser.served import Served

SCREENSHOTS: Final = Path(__file__).parents[2] / "test-results" / "dashboard"
SIZES: Final = {"desktop": DESKTOP, "phone": PHONE}
IDS: Final = [each.name for each in EVERY_PAGE]


def take_screenshot(page: Page, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", EVERY_PAGE, ids=IDS)
def test_a_page_is_usable_by_everyone_and_nothing_overlaps(
    open_dashboard: OpenDashboard, served: Served, axe: str, place: PageAt, size: str
) -> None:
    dashboard = open_dashboard(served.token if place.signed_in else None, size=SIZES[size])
    page = dashboard.open(place.url(served.filled))
    faults = [*layout_faults(page), *heading_faults(page)]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        take_screenshot(page, f"{place.name}-{size}-{scheme}")
        faults += [f"{scheme}: {found}" for found in dashboard.accessibility_violations(axe)]
    assert not faults, "\n".join(faults)
    expect(page.locator("img[src=x]")).to_have_count(0)
