"""Holders of tokens: a service asked with the token of somebody else than its first administrator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.unit.service.local_service import LocalAnswer, LocalService


@dataclass(frozen=True)
class Holder:
    """Asks with one token."""

    service: LocalService
    token: str

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        return {**options, "headers": headers}

    def send(self, method: str, path: str, body: Any = None, **options: Any) -> LocalAnswer:
        return self.service.send(method, path, body, **self._options(options))

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        return self.service.ask(method, path, body, **self._options(options))

    def refused(self, code: str, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        return self.service.refused(code, method, path, body, **self._options(options))

    def make(self, scope: str = "write", *, name: str = "made", **body: Any) -> Holder:
        """The holder of a token that this one makes."""
        return Holder(self.service, self.ask("POST", "/v1/tokens", {"name": name, "scope": scope, **body})["token"])

    def mint(self, run: str = "run", *, project: str = "project", **body: Any) -> Holder:
        """The holder of a job's token that this one mints."""
        made = self.ask("POST", "/v1/tokens/job", {"project": project, "run": run, **body})
        return Holder(self.service, made["token"])

    @property
    def info(self) -> dict[str, Any]:
        return self.ask("GET", "/v1/tokens/self")


def first_admin(service: LocalService) -> Holder:
    """The administrator that the service was started with."""
    return Holder(service, service._headers["authorization"].removeprefix("Bearer "))
