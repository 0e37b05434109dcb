"""Sign-ins of the dashboard: a token is shown once, and a cookie of this browser stands for it from then on."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, SecretStr

from shardkeep.protocol.messages.access import TokenInfo
from shardkeep.protocol.messages.bodies import Answer, Request


class SignIn(Request):
    """POST /v1/sign-in, from the dashboard's own origin only."""

    token: Annotated[SecretStr, Field(min_length=1, max_length=200)]


class SignedIn(Answer):
    """Who is signed in. Every request that changes something carries `csrf` as `x-shardkeep-csrf` beside the cookie."""

    token: TokenInfo
    csrf: str
    expires_at: datetime
    """When the cookie ends; never after the token."""
