"""Tokens for jobs: a token that may write mints a narrower one for one run, so that no job holds more than it needs.

A job's token sees its run and nothing beside it, cannot delete, mints no other, dies with the token that minted it, and
lives for a set number of hours at most.
"""

from __future__ import annotations

from typing import Final

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CreateJobToken, NewToken
from shardkeep_service.access import repository
from shardkeep_service.access.grants import plan_grant
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.scopes import Scope
from shardkeep_service.access.tokens import issue
from shardkeep_service.errors import Refusal
from shardkeep_service.runs.service import find_run
from shardkeep_service.service_context import ServiceContext

LIVING_LIMIT: Final = 1_000
"""Job tokens of one token that may be in use at a time."""


def mint_job_token(context: ServiceContext, giver: Principal, body: CreateJobToken) -> NewToken:
    """The token; refuses `scope_too_narrow` beyond what the giver has, `quota_exceeded` beyond LIVING_LIMIT."""
    if giver.run_id is not None:
        raise Refusal(
            ErrorCode.SCOPE_TOO_NARROW, f"{giver.name!r} is a job's token and makes no others; use the one that made it"
        )
    longest = context.settings.job_token_seconds
    if body.expires_in_seconds > longest:
        raise Refusal(
            ErrorCode.SCOPE_TOO_NARROW,
            f"a job's token lives {longest:g} s at most, {body.expires_in_seconds} s were asked",
        )
    with context.database.write() as session:
        owner, run = find_run(session, giver, body.project, body.run)
        now = context.database.now(session)
        grant = plan_grant(giver, Scope(body.scope), [owner.id], now=now, lifetime_seconds=body.expires_in_seconds)
        repository.lock_token(session, giver.token_id)
        living = repository.living_children(session, giver.token_id, now)
        if living >= LIVING_LIMIT:
            raise Refusal(
                ErrorCode.QUOTA_EXCEEDED,
                f"{giver.name!r} has {living} job tokens in use and at most {LIVING_LIMIT} are allowed; let some expire"
                " (ask for fewer seconds), or revoke some",
            )
        return issue(
            session,
            giver,
            grant,
            now=now,
            name=body.name,
            token_id=body.id,
            run_id=run.id,
            parent_id=giver.token_id,
        )
