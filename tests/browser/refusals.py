"""Answers that a test gives in the service's place: refusals with a request id, and answers that are held back."""

from __future__ import annotations

import json
from typing import Final

from playwright.sync_api import Page, Route

REQUEST_ID: Final = "request-of-the-test"


def problem(*, code: str = "storage_unavailable", title: str = "Storage unavailable", status: int = 503) -> str:
    """A problem document; what is 5xx may be tried again."""
    body = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "code": code,
        "detail": "the store does not answer",
        "request_id": REQUEST_ID,
        "retryable": status >= 500,
    }
    return json.dumps(body)


def refuse(page: Page, pattern: str) -> None:
    """From now on what is asked for at `pattern` is refused, for the time being."""
    page.route(
        pattern, lambda route: route.fulfill(status=503, content_type="application/problem+json", body=problem())
    )


class Held:
    """Requests of one method at a pattern, none of which is answered before the test says so."""

    def __init__(self, page: Page, pattern: str, *, method: str = "GET") -> None:
        self._method = method
        self._routes: list[Route] = []
        page.route(pattern, self._hold)

    def release(self) -> None:
        """Lets the service answer those that were held, and those that come."""
        self._method = ""
        for route in self._routes:
            route.continue_()

    def refuse(self, *, code: str, title: str, status: int) -> None:
        """Answers the one that was held with a refusal."""
        (route,) = self._routes
        body = problem(code=code, title=title, status=status)
        route.fulfill(status=status, content_type="application/problem+json", body=body)

    def _hold(self, route: Route) -> None:
        if route.request.method == self._method:
            self._routes.append(route)
        else:
            route.continue_()
