"""What a tab asks the service for."""

from __future__ import annotations

from playwright.sync_api import Page


def requests_of(page: Page) -> list[str]:
    """The addresses that are asked for from now on; grows by itself."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    return asked


def ask_only_when_told(page: Page) -> None:
    """What is opened from now on asks for nothing at intervals, so that no answer comes between two steps of a test."""
    page.add_init_script("window.setInterval = () => 0")
