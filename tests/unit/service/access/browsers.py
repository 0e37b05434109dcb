"""A browser in front of the dashboard: keeps the cookie, sends what browsers send, and lets a test leave it out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any

from shardkeep.protocol import routes
from tests.unit.service.local_service import LocalAnswer, LocalService

SAFE = ("GET", "HEAD")


@dataclass
class Browser:
    """Asks as the dashboard's page at `origin` does. `headers` of a request replace its own; None leaves one out."""

    service: LocalService
    origin: str = ""
    cookies: dict[str, str] = field(default_factory=dict)
    csrf: str = ""

    def __post_init__(self) -> None:
        self.origin = self.origin or self.service._url

    @property
    def host(self) -> str:
        return self.origin.partition("://")[2]

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: bytes | None = None,
        headers: dict[str, str | None] | None = None,
    ) -> LocalAnswer:
        sent = json.dumps(body).encode() if body is not None else content
        given = {**self._headers(method, json_body=body is not None), **(headers or {})}
        kept = {name: value for name, value in given.items() if value is not None}
        url = self.service._url + path
        answer = self.service._pool.request(method, url, body=sent, headers=kept, redirect=False, timeout=60)
        self._keep(answer.headers.getlist("set-cookie"))
        return LocalAnswer(answer.status, answer.data, answer.headers)

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        answer = self.send(method, path, body, **options)
        assert answer.is_success, f"{method} {path}: {answer.status} {answer.content!r}"
        document: dict[str, Any] = answer.json() if answer.content else {}
        return document

    def refused(self, code: str, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        answer = self.send(method, path, body, **options)
        assert not answer.is_success, f"{method} {path} was not refused: {answer.content!r}"
        problem: dict[str, Any] = answer.json()
        assert problem["code"] == code, problem
        return problem

    def sign_in(self, token: str, **options: Any) -> dict[str, Any]:
        answered = self.ask("POST", routes.SIGN_IN, {"token": token}, **options)
        self.csrf = answered["csrf"]
        return answered

    def _headers(self, method: str, *, json_body: bool) -> dict[str, str | None]:
        given: dict[str, str | None] = {"host": self.host, "sec-fetch-site": "same-origin"}
        if method not in SAFE:
            given |= {"origin": self.origin, routes.CSRF_HEADER: self.csrf or None}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if json_body:
            given["content-type"] = "application/json"
        return given

    def _keep(self, set_cookies: list[str]) -> None:
        for text in set_cookies:
            for name, morsel in SimpleCookie(text).items():
                if morsel["max-age"] == "0":
                    self.cookies.pop(name, None)
                elif not morsel["secure"] or self.origin.startswith("https://"):
                    self.cookies[name] = morsel.value


def signed_in(service: LocalService, token: str, *, origin: str = "") -> Browser:
    """A browser that has signed in with this token."""
    browser = Browser(service, origin)
    browser.sign_in(token)
    return browser
