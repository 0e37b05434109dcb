"""Everything by keyboard, with a focus that is seen; and the theme, which this browser remembers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import PHONE, Dashboard
from tests.browser.served import Served
from tests.browser.tables import row_names, table

_FOCUS_IS_SEEN = """
() => {
  const one = document.activeElement
  const style = getComputedStyle(one)
  // Of a date's parts the browser itself marks the one that has the focus.
  if (one.matches('input[type=datetime-local]')) return true
  return one !== document.body && (parseFloat(style.outlineWidth) >= 2 && style.outlineStyle !== 'none'
    || style.boxShadow !== 'none')
}
"""


def focused(page: Page) -> str:
    text: str = page.evaluate("(document.activeElement.innerText || document.activeElement.ariaLabel || '').trim()")
    return text


def go_by_keys(page: Page, letter: str) -> None:
    """Presses g and the letter, which are to come soon after one another: between them no time passes for the page."""
    page.clock.pause_at(datetime.now(UTC) + timedelta(hours=1))
    page.keyboard.press("g")
    page.keyboard.press(letter)
    page.clock.resume()


def test_j_and_k_move_among_rows_and_enter_opens_one(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs", heading="Runs")
    names = row_names(page, "Runs")
    rows = table(page, "Runs").locator("tbody tr")
    page.keyboard.press("j")
    expect(rows.nth(0)).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(rows.nth(1)).to_be_focused()
    assert page.evaluate(_FOCUS_IS_SEEN)
    page.keyboard.press("Enter")
    dashboard.settled(heading=names[1])


def test_enter_on_a_row_never_presses_a_button_that_acts(dashboard: Dashboard) -> None:
    dashboard.page.clock.install()
    page = dashboard.open("/access", heading="Tokens")
    page.keyboard.press("j")
    expect(table(page, "Tokens, newest first").locator("tbody tr").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    go_by_keys(page, "a")
    dashboard.settled(heading="Audit log")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(table(page, "Changes, newest first").locator("tbody tr").first.locator("details")).to_have_attribute(
        "open", ""
    )


def test_a_slash_goes_to_the_search_and_types_no_slash(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs", heading="Runs")
    page.keyboard.press("/")
    search = page.get_by_label("Search")
    expect(search).to_be_focused()
    page.keyboard.type("j/k")
    expect(search).to_have_value("j/k")


def test_g_and_a_letter_go_to_a_page_and_the_focus_to_its_heading(dashboard: Dashboard) -> None:
    dashboard.page.clock.install()
    page = dashboard.open("/", heading="Overview")
    go_by_keys(page, "r")
    dashboard.settled(heading="Runs")
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_esc_closes_a_dialog_and_the_focus_goes_back(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs?search=baseline", heading="Runs")
    button = page.get_by_role("button", name="Delete run demo/baseline")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()


def test_a_question_mark_shows_the_keys_and_they_can_be_turned_off(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs", heading="Runs")
    page.keyboard.press("?")
    page.get_by_label("Single keys are on").uncheck()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).not_to_be_focused()
    page.reload()
    dashboard.settled()
    page.keyboard.press("j")
    expect(table(page, "Runs").locator("tbody tr").first).not_to_be_focused()


@pytest.mark.parametrize("path", ["/", "/runs", "/access", "/projects", "/audit", "/saves"])
def test_tab_reaches_every_control_in_order_and_its_focus_is_seen(dashboard: Dashboard, path: str) -> None:
    page = dashboard.open(path)
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    seen = 0
    for _ in range(200):
        assert page.evaluate(_FOCUS_IS_SEEN), f"the focus on {focused(page)!r} is not seen"
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        seen += 1
    expected = page.evaluate(
        "[...document.querySelectorAll('a[href], button:not([tabindex=\"-1\"]), input, select, summary')]"
        ".filter(one => one.checkVisibility()).length"
    )
    assert seen >= min(expected, 200) - 1


def test_the_link_to_the_content_skips_the_menu(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs", heading="Runs")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("!!document.activeElement.closest('main')")


def test_on_a_phone_the_menu_unfolds_and_leads_on(open_dashboard: OpenDashboard) -> None:
    dashboard = open_dashboard(size=PHONE)
    page = dashboard.open("/", heading="Overview")
    menu = page.get_by_role("button", name="Menu")
    expect(page.get_by_role("link", name="Audit log")).to_be_hidden()
    menu.click()
    expect(menu).to_have_attribute("aria-expanded", "true")
    page.get_by_role("link", name="Audit log").click()
    dashboard.settled(heading="Audit log")
    expect(menu).to_have_attribute("aria-expanded", "false")


@pytest.mark.parametrize(
    ("path", "marked"), [("/", "Overview"), ("/retention/demo", "Projects"), ("checkpoint", "Runs")]
)
def test_the_menu_marks_where_one_is(dashboard: Dashboard, served: Served, path: str, marked: str) -> None:
    page = dashboard.open(f"/checkpoints/{served.filled.damaged}" if path == "checkpoint" else path)
    expect(page.get_by_role("navigation", name="Pages").locator("[aria-current]")).to_have_text([marked])


def test_the_theme_follows_the_system_unless_one_is_chosen_which_is_remembered(
    open_dashboard: OpenDashboard, served: Served
) -> None:
    dashboard = open_dashboard(scheme="dark")
    page = dashboard.open("/", heading="Overview")
    html = page.locator("html")
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.get_by_label("Theme").select_option("light")
    expect(html).not_to_have_css("background-color", dark)
    page.reload()
    dashboard.settled()
    expect(html).not_to_have_css("background-color", dark)
    assert page.evaluate("({...localStorage})") == {"shardkeep.theme": "light"}
    page.get_by_label("Theme").select_option("system")
    expect(html).to_have_css("background-color", dark)
    expect(page).to_have_title(re.compile("^Overview"))
