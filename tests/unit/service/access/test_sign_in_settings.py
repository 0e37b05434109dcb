"""The settings of browsers: read from the environment with commas, checked at the start, said what is wrong."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from shardkeep_service.settings import ENVIRONMENT_PREFIX, Settings


def from_environment(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(f"{ENVIRONMENT_PREFIX}{name}", value)
    return Settings()


def test_names_and_proxies_have_commas_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = from_environment(
        monkeypatch, UI_HOSTS="Dash.example.com, other ,", TRUSTED_PROXIES="10.0.0.7, 10.1.0.0/16,fd00::/8"
    )
    assert settings.ui_hosts == ("dash.example.com", "other")
    assert settings.trusted_proxies == ("10.0.0.7", "10.1.0.0/16", "fd00::/8")


def test_nothing_is_trusted_or_allowed_unless_it_is_said() -> None:
    settings = Settings()
    assert (settings.ui_hosts, settings.trusted_proxies, settings.ui_plain_http) == ((), (), False)


@pytest.mark.parametrize(
    "host", ["https://dash.example.com", "dash.example.com:443", "dash/ui", "*", "a b", ".example"]
)
def test_what_is_no_host_name_keeps_the_service_from_starting(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    with pytest.raises(ValidationError, match="no host name"):
        from_environment(monkeypatch, UI_HOSTS=host)


@pytest.mark.parametrize("proxy", ["*", "proxy.example.com", "10.0.0.0/99", "10.0.0.7:80", "10.1.2.3/16"])
def test_what_is_no_address_or_network_keeps_it_too(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    with pytest.raises(ValidationError, match="no address and no network"):
        from_environment(monkeypatch, TRUSTED_PROXIES=proxy)


@pytest.mark.parametrize("seconds", ["0", "-1", "59", "99999999", "nan"])
def test_a_sign_in_lives_for_a_minute_to_a_month(monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    with pytest.raises(ValidationError):
        from_environment(monkeypatch, UI_SIGN_IN_SECONDS=seconds)
