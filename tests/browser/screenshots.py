"""Pictures of pages, to be looked at; not committed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from playwright.sync_api import Page

DIRECTORY: Final = Path(__file__).parents[2] / "test-results" / "dashboard"


def take_screenshot(page: Page, name: str) -> None:
    """Of all of the page, however long."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=DIRECTORY / f"{name}.png", full_page=True)
