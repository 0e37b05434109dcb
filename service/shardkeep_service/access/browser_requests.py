"""Requests of the dashboard: with the cookie of a sign-in instead of a token.

What a cookie does by itself, any page can make it do. So a request with one counts only if it is the dashboard's own
(`browser_origin.py`), and one that may change something carries the CSRF word beside it.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from fastapi import Request

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access.bearer import SEND_BEARER
from shardkeep_service.access.browser_cookie import cookie_secret, csrf_agrees
from shardkeep_service.access.browser_origin import SAFE, BrowserRules
from shardkeep_service.errors import Refusal
from shardkeep_service.settings import Settings

_MISSING: Final = f"{SEND_BEARER}; in a browser, sign in at {routes.UI}/"
_TWO_COOKIES: Final = (
    "this browser sends two cookies of the dashboard's name, one of them from something else on this host: remove the"
    " cookies of this host in the browser, then sign in"
)


@dataclass(frozen=True, slots=True)
class BrowserRequests:
    """How this service takes requests of browsers; one per application."""

    rules: BrowserRules
    enabled: bool
    """Whether there is a dashboard, and with it sign-ins and cookies."""

    def secret_of(self, request: Request) -> str:
        """The secret of a request that may stand on its cookie.

        Refuses `token_missing`, `origin_refused` and `csrf_missing`; `sign_in_ended` where two cookies came.
        """
        secret = self.find_secret(request)
        if secret is None:
            raise Refusal(ErrorCode.TOKEN_MISSING, _MISSING)
        self.rules.check(request.headers, method=request.method)
        check_one_cookie(secret)
        if request.method not in SAFE and not csrf_agrees(secret, request.headers.get(routes.CSRF_HEADER)):
            raise Refusal(
                ErrorCode.CSRF_MISSING,
                f"a request that changes something carries {routes.CSRF_HEADER} beside the cookie, as GET"
                f" {routes.SIGN_IN} answers it; load the page again",
            )
        return secret

    def find_secret(self, request: Request) -> str | None:
        """The secret in the cookie, whatever it is worth; None without one, "" where two came."""
        if not self.enabled:
            return None
        sent = request.headers.getlist("cookie")
        return cookie_secret(sent, takes_plain=self.rules.takes_plain_cookie(request.headers)) if sent else None


def browser_requests(settings: Settings) -> BrowserRequests:
    """As the settings say."""
    rules = BrowserRules(frozenset(settings.ui_hosts), plain_http=settings.ui_plain_http)
    return BrowserRequests(rules, enabled=settings.ui_enabled)


def check_one_cookie(secret: str | None) -> None:
    """Refuses `sign_in_ended` where two cookies came: ours is one of them, but nobody can say which.

    Signing in anew would not help, for it replaces only ours.
    """
    if secret == "":
        raise Refusal(ErrorCode.SIGN_IN_ENDED, _TWO_COOKIES)


def client_address(request: Request) -> str:
    """The IP address the request came from, `unknown` where there is none: a proxy may have forwarded anything."""
    host = request.client.host if request.client else ""
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))  # a zone may be as long as it likes
    except ValueError:
        return "unknown"
