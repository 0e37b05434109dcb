"""Whose failed sign-ins count together behind a proxy: forwarded addresses are believed of trusted proxies only."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shardkeep.protocol import routes
from shardkeep_service.access.sign_in_limit import ADDRESS_FAILURES, ADDRESS_SECONDS
from tests.integration.service.process_client import ProcessClient
from tests.service_process import ServiceProcess
from tests.unit.service.access.browsers import Browser

CLIENT = "203.0.113.9"
PROXY = {"SHARDKEEP_SERVICE_TRUSTED_PROXIES": "127.0.0.1"}


def browser(service: ServiceProcess) -> Browser:
    return Browser(ProcessClient(service))


def forwarded(addresses: str, **more: str) -> dict[str, str | None]:
    return {"x-forwarded-for": addresses, **{name.replace("_", "-"): value for name, value in more.items()}}


def fail(service: ServiceProcess, addresses: str) -> int:
    return browser(service).send("POST", routes.SIGN_IN, {"token": "wrong"}, headers=forwarded(addresses)).status


def fail_until_refused(service: ServiceProcess, claims: Iterable[str]) -> None:
    """All of these count together: they fail as often as one address may, and as it earned again meanwhile."""
    began = time.monotonic()
    answers = list(itertools.takewhile(lambda status: status == 401, (fail(service, claimed) for claimed in claims)))
    earned = (time.monotonic() - began) / ADDRESS_SECONDS
    assert ADDRESS_FAILURES <= len(answers) <= ADDRESS_FAILURES + earned


def signed_in_from(service: ServiceProcess, addresses: str) -> Any:
    """The address that the audit log has of a sign-in."""
    browser(service).sign_in(service.token, headers=forwarded(addresses, x_forwarded_proto="https"))
    answer = ProcessClient(service).ask("GET", routes.AUDIT, query={"action": "sign_in.create", "limit": 1})
    return answer["items"][0]["detail"]["address"]


def test_without_the_setting_a_forwarded_address_is_only_a_claim(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "service") as service:
        assert signed_in_from(service, CLIENT) == "127.0.0.1"
        fail_until_refused(service, (f"203.0.113.{number}" for number in itertools.count()))


def test_of_a_trusted_proxy_it_is_believed_as_far_as_the_proxy_saw_it_itself(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "service", env=PROXY) as service:
        assert signed_in_from(service, CLIENT) == CLIENT
        assert signed_in_from(service, f"198.51.100.1, {CLIENT}") == CLIENT
        fail_until_refused(service, (f"198.51.100.{number}, {CLIENT}" for number in itertools.count()))
        assert fail(service, "203.0.113.10") == 401


def test_a_forwarded_address_that_is_none_harms_nothing(tmp_path: Path) -> None:
    claims = {
        "nonsense": "unknown",
        "": "127.0.0.1",
        "<script>": "unknown",
        "1.2.3.4.5": "unknown",
        "x" * 5000: "unknown",
        f"fe80::1%{'x' * 5000}": "fe80::1",
    }
    with ServiceProcess(tmp_path / "service", env=PROXY) as service:
        for claimed, kept in claims.items():
            assert fail(service, claimed) == 401
            assert signed_in_from(service, claimed) == kept
