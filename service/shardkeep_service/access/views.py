"""A token as the protocol shows it."""

from __future__ import annotations

from shardkeep.protocol.messages import TokenInfo
from shardkeep_service.access.models import Token
from shardkeep_service.moments import moment


def token_info(token: Token, *, project_name: str | None) -> TokenInfo:
    """A token as it is shown: never its text or hash."""
    return TokenInfo(
        id=token.id,
        name=token.name,
        prefix=token.prefix,
        scope=token.scope,
        project=project_name,
        created_at=moment(token.created_at),
        expires_at=moment(token.expires_at),
        last_used_at=moment(token.last_used_at),
        revoked_at=moment(token.revoked_at),
    )
