"""Tokens as the protocol shows them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import TokenInfo
from shardkeep_service.access import repository
from shardkeep_service.access.models import Token
from shardkeep_service.moments import moment
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.models import Run


def token_infos(session: Session, tokens: Sequence[Token]) -> list[TokenInfo]:
    """Several tokens, in a number of queries that does not depend on theirs: never a text or a hash."""
    bound = repository.projects_of_all(session, [token.id for token in tokens])
    project_ids = {project_id for ids in bound.values() for project_id in ids}
    project_names = dict(session.execute(select(Project.id, Project.name).where(Project.id.in_(project_ids))).all())
    run_ids = {token.run_id for token in tokens if token.run_id is not None}
    run_names = dict(session.execute(select(Run.id, Run.name).where(Run.id.in_(run_ids))).all()) if run_ids else {}
    return [
        _token_info(
            token,
            projects=sorted(project_names[project_id] for project_id in bound.get(token.id, ())),
            run=run_names.get(token.run_id, token.run_id) if token.run_id else None,
        )
        for token in tokens
    ]


def token_info(session: Session, token: Token) -> TokenInfo:
    """One token."""
    return token_infos(session, [token])[0]


def _token_info(token: Token, *, projects: list[str], run: str | None) -> TokenInfo:
    bound = token.project_id is not None
    return TokenInfo(
        id=token.id,
        name=token.name,
        prefix=token.prefix,
        scope=token.scope,
        project=projects[0] if projects else token.project_id,
        projects=projects if bound else None,
        run=run,
        parent_id=token.parent_id,
        created_at=moment(token.created_at),
        expires_at=moment(token.expires_at),
        last_used_at=moment(token.last_used_at),
        revoked_at=moment(token.revoked_at),
    )
