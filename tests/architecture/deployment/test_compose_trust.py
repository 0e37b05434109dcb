"""By its defaults compose lets replicas believe its proxy about where browsers are: else all were one address."""

from __future__ import annotations

import pytest
import yaml

from shardkeep_service.settings import ENVIRONMENT_PREFIX, Settings
from tests.architecture.deployment.compose_checks import problems_of_trust, with_defaults
from tests.architecture.deployment.facts import ROOT

COMPOSE = (ROOT / "docker-compose.yml").read_text()
VARIABLE = f"{ENVIRONMENT_PREFIX}TRUSTED_PROXIES"


def test_replicas_believe_the_proxy_of_compose_by_default() -> None:
    assert problems_of_trust(yaml.safe_load(COMPOSE)) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (":-${DATA_SUBNET:-172.16.238.0/24}}", ":-}", "service-1 trusts ''"),
        (f"    {VARIABLE}:", "    #", "service-2 trusts ''"),
        ("${TRUSTED_PROXIES:-${DATA_SUBNET:-172.16.238.0/24}}", "${TRUSTED_PROXIES:-172.16.0.0/12}", "the proxy is on"),
        ('    ipam: {config: [{subnet: "${DATA_SUBNET:-172.16.238.0/24}"}]}\n', "    {}\n", "the proxy is on []"),
        ("172.16.238.0/24", "8.8.8.0/24", "8.8.8.0/24 is a public network"),
    ],
)
def test_a_proxy_that_is_not_believed_and_more_that_is_are_seen(old: str, new: str, told: str) -> None:
    assert old in COMPOSE, "the mistake is planted nowhere"
    found = problems_of_trust(yaml.safe_load(COMPOSE.replace(old, new)))
    assert any(told in problem for problem in found), found


def test_the_network_that_is_believed_is_one_that_the_service_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    value = yaml.safe_load(COMPOSE)["services"]["service-1"]["environment"][VARIABLE]
    monkeypatch.setenv(VARIABLE, with_defaults(value))
    assert Settings().trusted_proxies == ("172.16.238.0/24",)
