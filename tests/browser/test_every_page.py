"""Every page at every width and in both themes: usable by everyone, nothing overlaps, nothing is taken for markup.

Leaves a screenshot of each in `test-results/dashboard/`, to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.dashboard import SIZES, Dashboard
from tests.browser.every_page import EVERY_PAGE, PageAt
from tests.browser.launches import MARKUP
from tests.browser.layout import heading_faults, layout_faults
from tests.browser.screenshots import take_screenshot
from tests.browser.served import Served

VISITS: Final = [pytest.param((place, size), id=f"{place.name}-{size}") for place in EVERY_PAGE for size in SIZES]


@dataclass(frozen=True, slots=True)
class Visit:
    """A page that stands open, at a width, in the light theme."""

    dashboard: Dashboard
    place: PageAt
    size: str


@pytest.fixture(scope="module")
def administrator(browser: Browser, served: Served) -> Iterator[Dashboard]:
    with closing(Dashboard(browser, served.url)) as dashboard:
        dashboard.sign_in(served.token)
        yield dashboard


@pytest.fixture(scope="module")
def stranger(browser: Browser, served: Served) -> Iterator[Dashboard]:
    with closing(Dashboard(browser, served.url)) as dashboard:
        yield dashboard


@pytest.fixture(scope="module", params=VISITS)
def visit(
    request: pytest.FixtureRequest, administrator: Dashboard, stranger: Dashboard, served: Served
) -> Iterator[Visit]:
    """A page is opened once for all tests that look at it."""
    place, size = request.param
    dashboard = administrator if place.signed_in else stranger
    dashboard.set_size(SIZES[size])
    dashboard.page.emulate_media(color_scheme="light")
    dashboard.open(place.url(served.filled))
    yield Visit(dashboard, place, size)
    dashboard.check()


def test_nothing_overlaps_and_headings_skip_no_level(visit: Visit) -> None:
    page = visit.dashboard.page
    faults = [*layout_faults(page), *heading_faults(page)]
    assert not faults, "\n".join(faults)


def test_everyone_can_use_a_page_in_both_themes(visit: Visit, axe: str) -> None:
    faults = []
    for scheme in ("light", "dark"):
        visit.dashboard.page.emulate_media(color_scheme=scheme)
        take_screenshot(visit.dashboard.page, f"{visit.place.name}-{visit.size}-{scheme}")
        faults += [f"{scheme}: {found}" for found in visit.dashboard.accessibility_violations(axe)]
    assert not faults, "\n".join(faults)


def test_nothing_is_taken_for_markup(visit: Visit) -> None:
    page = visit.dashboard.page
    page.evaluate("document.querySelectorAll('main details').forEach(one => { one.open = true })")
    if visit.place.shows_markup:
        expect(page.get_by_text(MARKUP, exact=False).first).to_be_attached()
    expect(page.locator("img[src=x], main script, main iframe")).to_have_count(0)


def test_pages_with_markup_are_among_those_tried() -> None:
    assert sum(place.shows_markup for place in EVERY_PAGE) >= 10
