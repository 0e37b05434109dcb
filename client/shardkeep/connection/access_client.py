"""The routes of tokens, quotas and the audit log as typed methods."""

from __future__ import annotations

from collections.abc import Iterator

from shardkeep.connection.service_client import Query, ServiceClient
from shardkeep.protocol import routes
from shardkeep.protocol.messages import (
    AuditEntryInfo,
    CreateJobToken,
    CreateToken,
    NewToken,
    Page,
    QuotaInfo,
    SetQuota,
    TokenInfo,
)


class AccessClient(ServiceClient):
    """What administrators ask, over the same connections."""

    def token(self) -> TokenInfo:
        """What the token in use may do."""
        return self._ask("GET", routes.TOKEN_SELF, TokenInfo)

    def create_token(self, message: CreateToken) -> NewToken:
        """A new token. Give the message an `id`: then a repeated request makes no second one."""
        return self._ask("POST", routes.TOKENS, NewToken, message)

    def mint_job_token(self, message: CreateJobToken) -> NewToken:
        """A short-lived token for the jobs of one run."""
        return self._ask("POST", routes.JOB_TOKENS, NewToken, message)

    def tokens(self, *, project: str | None = None, living: bool = False) -> Iterator[TokenInfo]:
        """Tokens, newest first; `living` leaves out what cannot be used any more."""
        query: Query = {"project": project, "living": living or None}
        return self._pages(routes.TOKENS, Page[TokenInfo], query)

    def revoke_token(self, token_id: str) -> TokenInfo:
        """Revokes a token, and those it minted."""
        return self._ask("DELETE", routes.path(routes.TOKEN, token=token_id), TokenInfo)

    def quota(self, project: str) -> QuotaInfo:
        """What a project may use, and what it uses."""
        return self._ask("GET", routes.path(routes.QUOTA, project=project), QuotaInfo)

    def set_quota(self, project: str, message: SetQuota) -> QuotaInfo:
        """Sets both limits."""
        return self._ask("PUT", routes.path(routes.QUOTA, project=project), QuotaInfo, message)

    def audit(self, query: Query, *, limit: int | None = None) -> Iterator[AuditEntryInfo]:
        """Changes, newest first; `query` has the filters of the route."""
        return self._pages(routes.AUDIT, Page[AuditEntryInfo], query, limit=limit)
