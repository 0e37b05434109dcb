"""Which requests of a browser are the dashboard's own: by Host, Origin and Sec-Fetch-Site. Pure.

A page of another site can make a browser send requests here, cookie included, and a name that resolves to this machine
(DNS rebinding) makes such a page look like ours. Neither can forge these headers.

Forwarded headers play no part: a name that is not this machine's own is taken to be reached over TLS, whatever ends
it, unless plain HTTP is allowed. A browser that came over plain HTTP says so in Origin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from starlette.datastructures import Headers

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.errors import Refusal

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Always allowed: nobody else's page can have such an origin."""
SAFE: Final = frozenset({"GET", "HEAD"})

_PLACE: Final = re.compile(r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
_PORTS: Final = {"http": 80, "https": 443}


class Place(NamedTuple):
    """A host by its lower-case name (IPv6 in brackets) and its port, None where the scheme's own is meant."""

    name: str
    port: int | None


@dataclass(frozen=True, slots=True)
class BrowserRules:
    """What an operator allows: `hosts` beside those of this machine, and whether they may be reached without TLS."""

    hosts: frozenset[str] = frozenset()
    plain_http: bool = False

    def check(self, headers: Headers, *, method: str) -> bool:
        """Whether the browser reached us over TLS; `origin_refused` refuses what is not the dashboard's own request."""
        host = self._host(headers)
        scheme = self._scheme(headers, host)
        site = headers.get("sec-fetch-site")
        if site not in (None, "same-origin") and not (site == "none" and method in SAFE):
            raise refused(f"a page of another origin sent this request (Sec-Fetch-Site: {site[:20]})")
        return scheme == "https"

    def takes_plain_cookie(self, headers: Headers) -> bool:
        """Whether a cookie that came over plain HTTP counts at this Host."""
        place = parse_place(headers.get("host", ""))
        return self.plain_http or (place is not None and place.name in LOOPBACK)

    def _host(self, headers: Headers) -> Place:
        given = headers.getlist("host")
        place = parse_place(given[0]) if len(given) == 1 else None
        if place is None or place.name not in LOOPBACK | self.hosts:
            shown = "none" if place is None else place.name
            raise refused(
                f"the dashboard is not known under the host {shown!r}: add it to SHARDKEEP_SERVICE_UI_HOSTS, and let a"
                " proxy pass the Host header on as it came"
            )
        return place

    def _scheme(self, headers: Headers, host: Place) -> str:
        """Of the page the request came from, which is ours; without an Origin, what is to be assumed of this host."""
        may_be_plain = self.plain_http or host.name in LOOPBACK
        given = headers.getlist("origin")
        if not given:
            return "http" if may_be_plain else "https"
        scheme, _, rest = given[0].lower().partition("://")
        place = parse_place(rest)
        if len(given) > 1 or place is None or scheme not in _PORTS or not _same(host, place, scheme):
            raise refused(f"a page of another origin sent this request (Origin: {given[0][:200]!a})")
        if scheme == "http" and not may_be_plain:
            raise refused(
                f"{host.name!r} is reached without TLS, where everyone on the way reads the cookie: put a proxy with"
                " TLS in front, or set SHARDKEEP_SERVICE_UI_PLAIN_HTTP on a network you trust"
            )
        return scheme


def parse_place(text: str) -> Place | None:
    """A Host header's value; None where it is malformed."""
    match = _PLACE.fullmatch(text.strip().lower())
    if match is None:
        return None
    port = match["port"]
    return Place(match["name"], None if port is None else int(port))


def refused(detail: str) -> Refusal:
    """The refusal of a request that another page made."""
    return Refusal(ErrorCode.ORIGIN_REFUSED, detail)


def _same(host: Place, origin: Place, scheme: str) -> bool:
    default = _PORTS[scheme]
    return host.name == origin.name and (host.port or default) == (origin.port or default)
