"""The audit log: every change leaves one entry, in the transaction of the change itself.

What is written here is kept as it is: no route and no task changes or removes an entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy.orm import Session

from shardkeep_service.access.models import AuditEntry
from shardkeep_service.access.principal import Principal
from shardkeep_service.database.session_time import session_now
from shardkeep_service.observability.request_ids import current_request_id

WORKER: Final = "worker"
"""The actor of what the service does by itself: expiry, validation, retention, collection, scrub."""
OPERATOR: Final = "operator"
"""The actor of the service's own command line."""


def record(
    session: Session,
    actor: Principal | str,
    action: str,
    *,
    target: str,
    project_id: str | None = None,
    detail: Mapping[str, Any] | None = None,
    request_id: str | None = None,
) -> None:
    """Adds an entry to the transaction of `session`: it exists if and only if the change does.

    `actor` is the token that asked, or WORKER or OPERATOR. `action` is `noun.verb`: `checkpoint.delete`, say. `target`
    is what was changed: an id, or a name where that says more. `detail` is JSON, without secrets: what changed, from
    what, why. `request_id` is for a change that another request's thread writes. Call it only where something did
    change; a repeated request leaves no second entry.
    """
    identity, name = (actor.token_id, actor.name) if isinstance(actor, Principal) else (actor, actor)
    session.add(
        AuditEntry(
            at=session_now(session),
            actor=identity,
            actor_name=name,
            action=action,
            target=target,
            project_id=project_id,
            request_id=request_id or current_request_id(),
            detail=dict(detail) if detail else None,
        )
    )
