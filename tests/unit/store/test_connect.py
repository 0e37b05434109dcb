"""Finding the service and its token."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardkeep.errors import ConfigurationError
from shardkeep.protocol.local_token_file import write_local_token
from shardkeep.store.connect import CodecName, connect, find_service

ONE, TWO = "http://127.0.0.1:7001", "http://127.0.0.1:7002"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHARDKEEP_HOME", str(tmp_path))
    for name in ("SHARDKEEP_URL", "SHARDKEEP_TOKEN", "SHARDKEEP_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_arguments_come_before_the_environment() -> None:
    environment = {"SHARDKEEP_URL": TWO, "SHARDKEEP_TOKEN": "env"}
    assert find_service(ONE, "arg", environment) == (ONE, "arg")
    assert find_service(None, None, environment) == (TWO, "env")


def test_the_one_local_service_is_found(home: Path) -> None:
    with pytest.raises(ConfigurationError, match="shardkeep-service serve"):
        find_service(None, None, {})
    write_local_token(url=ONE, token="first", data_dir=home / "one")
    assert find_service(None, None, {}) == (ONE, "first")


def test_several_local_services_are_listed(home: Path) -> None:
    write_local_token(url=ONE, token="first", data_dir=home / "one")
    write_local_token(url=TWO, token="second", data_dir=home / "two")
    with pytest.raises(ConfigurationError, match=f"{ONE}, {TWO}"):
        find_service(None, None, {})
    assert find_service(TWO + "/", None, {}) == (TWO + "/", "second")


def test_a_local_token_is_for_its_own_url_only(home: Path) -> None:
    write_local_token(url=ONE, token="first", data_dir=home / "one")
    for url in ("https://store.example", TWO, "https://127.0.0.1:7001"):
        with pytest.raises(ConfigurationError, match="SHARDKEEP_TOKEN"):
            find_service(url, None, {})


def test_plain_http_elsewhere_needs_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="SHARDKEEP_ALLOW_HTTP"):
        connect("http://10.0.0.1:7", "t")
    monkeypatch.setenv("SHARDKEEP_ALLOW_HTTP", "1")
    connect("http://10.0.0.1:7", "t").close()


@pytest.mark.parametrize("name", ["run", "a/b/c", "/run", "project/", ""])
def test_a_run_is_named_project_slash_run(name: str) -> None:
    with connect(ONE, "t") as client, pytest.raises(ConfigurationError, match="project/run"):
        client.run(name)


@pytest.mark.parametrize(
    ("url", "codec", "used"),
    [
        (ONE, "auto", "raw"),
        (ONE, "planes", "planes"),
        ("https://checkpoints.example", "auto", "auto"),
    ],
)
def test_auto_spends_no_cores_on_encoding_for_a_service_that_shares_them(
    url: str, codec: CodecName, used: CodecName
) -> None:
    with connect(url, "token", codec=codec) as client:
        assert client.settings.codec == used
