"""The checks of the browser tests can fail: each is shown what it must find."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Request

from tests.browser.dashboard import PHONE, Dashboard
from tests.browser.layout import layout_faults
from tests.browser.other_site import OtherSite


@pytest.fixture
def site() -> Iterator[OtherSite]:
    with OtherSite() as served:
        yield served


def noted(browser: Browser, site: OtherSite, page: str) -> list[str]:
    """What a tab notes of a page."""
    dashboard = Dashboard(browser, site.url())
    site.page = page
    dashboard.page.goto("/")
    dashboard.page.wait_for_function("document.title === 'done'")
    dashboard.context.close()
    return dashboard.noted


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("alert(1)", "a dialog opened: 1"),
        ("console.error('broken')", "console: broken"),
        ("fetch('http://localhost:9/x').catch(() => 0)", "a request left the service: GET http://localhost:9/x"),
        ("window.onload = () => { throw new Error('thrown') }", "uncaught: thrown"),
        ("new Image().src = 'http://example.com/x.png'", "a request left the service: GET http://example.com/x.png"),
    ],
    ids=["dialog", "console", "fetch", "error", "image"],
)
def test_a_tab_notes_what_must_never_happen(browser: Browser, site: OtherSite, script: str, expected: str) -> None:
    done = "<script>addEventListener('load', () => setTimeout(() => { document.title = 'done' }))</script>"
    assert expected in "\n".join(noted(browser, site, f"<script>{script}</script>{done}"))


def test_a_tab_notes_what_a_content_security_policy_refuses(browser: Browser, site: OtherSite) -> None:
    page = (
        "<meta http-equiv=content-security-policy content=\"img-src 'none'; script-src 'unsafe-inline'\">"
        "<img src=/x.png>"
        "<script>document.addEventListener('securitypolicyviolation', () => { document.title = 'done' })</script>"
    )
    assert any("policy: img-src refused" in line for line in noted(browser, site, page))


def test_nothing_beyond_this_machine_is_reached(browser: Browser, site: OtherSite) -> None:
    page = (
        "<body><script>Promise.allSettled(['http://example.com/', 'http://1.1.1.1/'].map(url => fetch(url)))"
        ".then(all => { document.body.textContent = all.map(one => String(one.reason)).join();"
        " document.title = 'done' })</script>"
    )
    dashboard = Dashboard(browser, site.url())
    failures: set[str | None] = set()

    def note(request: Request) -> None:
        failures.add(request.failure)

    dashboard.page.on("requestfailed", note)
    site.page = page
    dashboard.page.goto("/")
    dashboard.page.wait_for_function("document.title === 'done'")
    assert dashboard.page.inner_text("body") == "TypeError: Failed to fetch,TypeError: Failed to fetch"
    assert failures == {"net::ERR_NAME_NOT_RESOLVED"}
    dashboard.context.close()


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<div style='width: 900px'>wide</div>", "the page is"),
        ("<button>one</button><button style='margin-left: -20px'>two</button>", "overlap by"),
        ("<button style='width: 30px; overflow: hidden; white-space: nowrap'>a long text</button>", "is cut off"),
        ("<a href=/ style='display: block; width: 30px; white-space: nowrap'>a long text</a>", "sticks out of it"),
        (
            "<main><table style='width: 40px; overflow-wrap: anywhere'><tr><td>model.layers.0.weight</table></main>",
            "px wide and",
        ),
        (
            "<p style='width: 9em; overflow: auto'><b role=tab aria-selected=true style='margin-left: 9em'>two</b>",
            "is out of sight",
        ),
    ],
    ids=["too wide", "overlap", "cut off", "sticks out", "sliver", "tab"],
)
def test_faults_of_layout_are_found(browser: Browser, site: OtherSite, page: str, expected: str) -> None:
    dashboard = Dashboard(browser, site.url(), size=PHONE)
    site.page = f"<meta name=viewport content='width=device-width'>{page}"
    dashboard.page.goto("/")
    assert any(expected in fault for fault in layout_faults(dashboard.page)), layout_faults(dashboard.page)
    dashboard.close()


def test_a_page_that_is_well_laid_out_has_no_faults(browser: Browser, site: OtherSite) -> None:
    dashboard = Dashboard(browser, site.url(), size=PHONE)
    site.page = (
        "<meta name=viewport content='width=device-width'><button>one</button> <button>two</button> <a href=/>link</a>"
        "<div style='overflow: auto'><table style='width: 900px'><tr><td><a href=/>in a scrolling box</a></table></div>"
    )
    dashboard.page.goto("/")
    assert layout_faults(dashboard.page) == []
    dashboard.close()


def test_axe_finds_what_it_is_to_find(browser: Browser, site: OtherSite, axe: str) -> None:
    dashboard = Dashboard(browser, site.url())
    site.page = "<html lang=en><main><h1>x</h1><img src=data:,><p style='color: #ccc'>pale</p></main>"
    dashboard.page.goto("/")
    found = "\n".join(dashboard.accessibility_violations(axe))
    assert "image-alt" in found
    assert "color-contrast" in found
    dashboard.close()
