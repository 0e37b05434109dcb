"""Where the service is, and whether a token may travel there. Sending is in `transport`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from shardkeep.errors import ConfigurationError

ALLOW_HTTP_VARIABLE: Final = "SHARDKEEP_ALLOW_HTTP"


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """The one origin that may see the token, and the path below which the routes live."""

    scheme: str
    host: str
    port: int
    prefix: str = ""

    @classmethod
    def parse(cls, url: str, *, allow_http: bool = False) -> ServiceAddress:
        """Read `http(s)://host[:port][/prefix]`; plain HTTP off loopback is refused unless `allow_http`."""
        parts = urlsplit(url.strip())
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigurationError(f"The service URL {url!r} is not of the form https://host[:port]")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ConfigurationError(
                "The service URL takes no user, query or fragment; give the token in SHARDKEEP_TOKEN"
            )
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as exc:
            raise ConfigurationError(f"The service URL {url!r} has an impossible port") from exc
        if parts.scheme == "http" and not is_loopback(parts.hostname) and not allow_http:
            raise ConfigurationError(
                f"{url!r} would send the token over plain HTTP to another machine; use https://, "
                f"or set {ALLOW_HTTP_VARIABLE}=1 if the network is trusted"
            )
        return cls(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))

    @property
    def url(self) -> str:
        """The address as a URL without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"

    def resolve(self, target: str) -> tuple[str, bool]:
        """The absolute URL of a target, and whether it is on the service and takes the token."""
        if target.startswith("/") and not target.startswith("//"):
            return self.url + target, True
        parts = urlsplit(target)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            shown = target.partition("?")[0][:100]
            raise ConfigurationError(f"The service named a transfer target that is no URL: {shown!r}")
        return target, False


def is_loopback(host: str) -> bool:
    """Whether a host name or address stays on this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
