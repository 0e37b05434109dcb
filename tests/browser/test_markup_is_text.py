"""Whatever people name things, nothing of it is taken for markup: on every page and in every tab."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard import Dashboard
from tests.browser.every_page import EVERY_PAGE, PageAt
from tests.browser.launches import MARKUP
from tests.browser.served import Served

SHOWING: Final = {
    "run-attempts": "labels",
    "checkpoint": "environment, metrics",
    "checkpoint-tensors": "names of tensors",
    "checkpoint-values": "values",
    "checkpoint-aborted": "the reason of an abort",
    "checkpoint-pinned": "the reason of a pin",
    "difference": "names of tensors",
    "retention": "names of metrics",
    "access-all": "names of tokens",
    "audit": "details",
}
"""Pages that show a text with markup of somebody's own, and what it is."""
PLACES: Final = [each for each in EVERY_PAGE if each.signed_in]


@pytest.mark.parametrize("place", PLACES, ids=[each.name for each in PLACES])
def test_nothing_is_taken_for_markup(dashboard: Dashboard, served: Served, place: PageAt) -> None:
    page = dashboard.open(place.url(served.filled))
    page.evaluate("document.querySelectorAll('main details').forEach(one => { one.open = true })")
    if place.name in SHOWING:
        expect(page.get_by_text(MARKUP, exact=False).first).to_be_attached()
    expect(page.locator("img[src=x], main script, main iframe")).to_have_count(0)


def test_every_page_that_shows_markup_is_tried() -> None:
    assert set(SHOWING) <= {each.name for each in PLACES}


def test_an_address_with_markup_is_text_too(dashboard: Dashboard) -> None:
    for path in (
        f"/runs?search={MARKUP}",
        f"/runs/{MARKUP}/{MARKUP}",
        f"/checkpoints/{MARKUP}",
        f"/audit?actor={MARKUP}",
    ):
        page = dashboard.open(path)
        expect(page.locator("img[src=x]")).to_have_count(0)
