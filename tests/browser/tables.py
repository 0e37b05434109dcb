"""Reading the dashboard's tables and lists."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect


def table(page: Page, caption: str) -> Locator:
    """A table by its caption."""
    return page.get_by_role("table", name=caption, exact=True)


def row(page: Page, caption: str, name: str) -> Locator:
    """The row whose header says exactly `name`."""
    header = page.get_by_role("rowheader", name=name, exact=True)
    return table(page, caption).locator("tbody tr").filter(has=header)


def row_names(page: Page, caption: str) -> list[str]:
    """The headers of the rows as they are now, from above."""
    return [text.strip() for text in table(page, caption).locator("tbody th").all_inner_texts()]


def expect_rows(page: Page, caption: str, names: list[str]) -> None:
    """Waits until the table has exactly these rows in this order."""
    headers = table(page, caption).locator("tbody th")
    expect(headers).to_have_text(names, use_inner_text=True)


def expect_only(page: Page, caption: str, name: str) -> None:
    """Waits until the table has rows, and every one of them is called so."""
    headers = table(page, caption).locator("tbody th")
    expect(headers.filter(has_not_text=re.compile(rf"^\s*{re.escape(name)}\s*$"))).to_have_count(0)
    expect(headers.first).to_have_text(name)
