"""An address with markup in it is text too. What is shown of names and values is tried in `test_every_page`."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard import Dashboard
from tests.browser.launches import MARKUP


@pytest.mark.parametrize("path", ["/runs?search={}", "/runs/{}/{}", "/checkpoints/{}", "/audit?actor={}"])
def test_an_address_with_markup_is_text(dashboard: Dashboard, path: str) -> None:
    page = dashboard.open(path.replace("{}", MARKUP))
    expect(page.locator("img[src=x]")).to_have_count(0)
