"""What a module's tests share: a service on a copy of the filled directory, and who may sign in."""

from __future__ import annotations

from dataclasses import dataclass

import shardkeep as sk
from tests.browser.filled_service import Filled
from tests.service_process import ServiceProcess


@dataclass(frozen=True, slots=True)
class Served:
    """A running service, and what it holds."""

    process: ServiceProcess
    filled: Filled

    @property
    def url(self) -> str:
        """Its origin, as a browser on this machine reaches it."""
        return self.process.url

    @property
    def token(self) -> str:
        """An administrator's."""
        return self.process.token

    def connect(self) -> sk.Client:
        """A client of an administrator."""
        return sk.connect(self.url, self.token, codec="raw")
