"""Where the token may travel."""

from __future__ import annotations

import pytest

from shardkeep.connection.addresses import ServiceAddress, is_loopback
from shardkeep.errors import ConfigurationError


@pytest.mark.parametrize(("url", "expected"), [
    ("https://store.example", "https://store.example:443"),
    ("https://store.example:8443/shardkeep/", "https://store.example:8443/shardkeep"),
    ("http://127.0.0.1:7070", "http://127.0.0.1:7070"),
    ("http://[::1]:7070", "http://[::1]:7070"),
    ("http://localhost", "http://localhost:80"),
])  # fmt: skip
def test_urls_are_read(url: str, expected: str) -> None:
    assert ServiceAddress.parse(url).url == expected


@pytest.mark.parametrize("url", [
    "store.example", "ftp://x", "https://", "https://user:pw@x", "https://x?token=1", "http://x:99999", "http://10.0.0.1",
    "http://127.0.0.1.evil.example", "http://localhost.evil.example",
])  # fmt: skip
def test_impossible_and_unsafe_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        ServiceAddress.parse(url)


def test_plain_http_to_another_machine_can_be_allowed() -> None:
    assert ServiceAddress.parse("http://10.0.0.1:80", allow_http=True).url == "http://10.0.0.1:80"


def test_only_paths_on_the_service_take_the_token() -> None:
    address = ServiceAddress.parse("https://store.example/base")
    assert address.resolve("/v1/x") == ("https://store.example:443/base/v1/x", True)
    assert address.resolve("https://bucket.example/key?sig=1") == ("https://bucket.example/key?sig=1", False)
    assert address.resolve("https://store.example/base/v1/x")[1] is False
    for target in ("//evil.example/x", "v1/x", "file:///etc/passwd"):
        with pytest.raises(ConfigurationError):
            address.resolve(target)


def test_loopback_names() -> None:
    assert all(map(is_loopback, ["localhost", "a.localhost", "127.1.2.3", "::1"]))
    assert not any(map(is_loopback, ["example", "192.168.0.1", "0.0.0.0", "127.0.0.1.example"]))
