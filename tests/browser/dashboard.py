"""A tab of a real browser on the dashboard, that notes whatever must never happen there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, WebError, expect

ColorScheme = Literal["light", "dark"]
DESKTOP: Final = (1280, 800)
PHONE: Final = (390, 844)
SIZES: Final = {"desktop": DESKTOP, "phone": PHONE}
WAIT_MILLISECONDS: Final = 60_000
"""For a condition to hold; on a busy machine a page takes long."""
_AXE_TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
_RUN_AXE: Final = """
async tags => {
  const found = await axe.run(document, {runOnly: {type: 'tag', values: tags}, resultTypes: ['violations']});
  return found.violations.flatMap(violation => violation.nodes.map(node =>
    `${violation.id} at ${node.target.join(' ')}: ${(node.failureSummary || violation.help).replaceAll('\\n', ' ')}`));
}
"""
_WATCH_POLICY: Final = """
document.addEventListener('securitypolicyviolation', event =>
  console.error(`policy: ${event.violatedDirective} refused ${event.blockedURI} in ${event.sourceFile}`));
"""
_WAITING: Final = "main p[role=status], [aria-busy=true]"
"""What stands for something on its way."""
_ANSWERED_WITH_AN_ERROR: Final = "Failed to load resource"
"""What Chromium says of each 4xx and 5xx; tests that want none look at the page."""


def new_context(browser: Browser, url: str) -> BrowserContext:
    """Cookies, storage and caches of their own."""
    context = browser.new_context(base_url=url, reduced_motion="reduce", accept_downloads=True)
    context.set_default_timeout(WAIT_MILLISECONDS)
    context.add_init_script(_WATCH_POLICY)
    return context


class Dashboard:
    """One tab. Close it with `close`, which fails when anything was noted."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        *,
        size: tuple[int, int] = DESKTOP,
        scheme: ColorScheme = "light",
        context: BrowserContext | None = None,
    ) -> None:
        """`context`: one that outlives the tab, which leaves no cookies or storage in it; else it has one of its own.
        What was compiled and cached stays there: a first page takes half the time.
        """
        self.url = url
        self.noted: list[str] = []
        self.notes_foreign = True
        """Whether a request that leaves the service is a fault."""
        self._expected: tuple[str, ...] = ()
        self._is_kept = context is not None
        self.context: BrowserContext = context or new_context(browser, url)
        self._listeners: dict[str, Callable[[Any], None]] = {
            "request": self._note_foreign,
            "dialog": self._note_dialog,
            "weberror": self._note_error,
            "console": self._note_console,
        }
        for event, listener in self._listeners.items():
            self.context.on(event, listener)  # type: ignore[call-overload]
        self.page: Page = self.context.new_page()
        self.set_size(size)
        self.page.emulate_media(color_scheme=scheme)

    def set_size(self, size: tuple[int, int]) -> None:
        """Of the window, in pixels."""
        self.page.set_viewport_size({"width": size[0], "height": size[1]})

    def expects(self, *texts: str) -> None:
        """What the console says with one of these in it is no fault."""
        self._expected += texts

    def sign_in(self, token: str) -> None:
        """Takes the cookie for a token, as the form does, without the form."""
        answer = self.context.request.post("/v1/sign-in", data={"token": token}, headers={"origin": self.url})
        assert answer.ok, f"{answer.status}: {answer.text()}"

    def open(self, path: str = "/", *, heading: str | re.Pattern[str] | None = None) -> Page:
        """The page at `path` below /ui, once it shows its heading and waits for nothing."""
        self.page.goto(f"/ui{path}")
        return self.settled(heading=heading)

    def settled(self, *, heading: str | re.Pattern[str] | None = None) -> Page:
        """The page, once it shows its (or this) heading and waits for nothing."""
        title = self.page.get_by_role("heading", level=1)
        expect(title).to_be_visible(timeout=WAIT_MILLISECONDS)
        if heading is not None:
            expect(title).to_have_text(heading)
        expect(self.page.locator(_WAITING)).to_have_count(0)
        return self.page

    def accessibility_violations(self, axe: str) -> list[str]:
        """What axe-core finds at levels A and AA of WCAG 2.2. Evaluated by the debugger, which no policy holds back."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(axe)
        found: list[str] = self.page.evaluate(_RUN_AXE, list(_AXE_TAGS))
        return found

    def close(self) -> None:
        """Closes the tab, and those it opened."""
        if self._is_kept:
            self._leave_nothing()
        else:
            self.context.close()
        self.check()

    def check(self) -> None:
        """Fails if anything was noted since the last time."""
        noted, self.noted = self.noted, []
        assert not noted, "\n".join(noted)

    def _leave_nothing(self) -> None:
        for event, listener in self._listeners.items():
            self.context.remove_listener(event, listener)
        debugger = self.context.new_cdp_session(self.page)
        debugger.send("Storage.clearDataForOrigin", {"origin": self.url, "storageTypes": "all"})
        for page in self.context.pages:
            page.close()
        self.context.clear_cookies()

    def _note_foreign(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if not self.notes_foreign or parts.scheme in ("data", "blob") or f"{parts.scheme}://{parts.netloc}" == self.url:
            return
        self.noted.append(f"a request left the service: {request.method} {request.url}")

    def _note_error(self, error: WebError) -> None:
        self.noted.append(f"uncaught: {error.error}")

    def _note_dialog(self, dialog: Dialog) -> None:
        self.noted.append(f"a dialog opened: {dialog.message}")
        dialog.dismiss()

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type != "error" or message.text.startswith(_ANSWERED_WITH_AN_ERROR):
            return
        if not any(text in message.text for text in self._expected):
            self.noted.append(f"console: {message.text}")
