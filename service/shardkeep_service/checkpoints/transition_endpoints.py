"""Routes that change what is kept: deleting and restoring a checkpoint, pinning and tagging it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Response

from shardkeep.protocol import routes
from shardkeep.protocol.messages import CheckpointInfo, PinCheckpoint
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.checkpoints import tags, transitions
from shardkeep_service.checkpoints.transitions import Seen
from shardkeep_service.seen_versions import IfMatch, seen_version, with_etag
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["checkpoints"])

Context = Annotated[ServiceContext, Depends(get_context)]
Writer = Annotated[Principal, Depends(requires(Scope.WRITE))]
Deleter = Annotated[Principal, Depends(requires(Scope.DELETE))]
Admin = Annotated[Principal, Depends(requires(Scope.ADMIN))]


async def what_is_seen(
    if_match: IfMatch = None, attempt: Annotated[str | None, Header(alias=routes.ATTEMPT_HEADER)] = None
) -> Seen:
    """What the caller says it knew, from its headers."""
    return Seen(seen_version(if_match), attempt)


WhatIsSeen = Annotated[Seen, Depends(what_is_seen)]


@router.delete(routes.CHECKPOINT)
def delete_checkpoint(
    context: Context,
    principal: Deleter,
    checkpoint: str,
    response: Response,
    seen: WhatIsSeen,
) -> CheckpointInfo:
    """Deletes a checkpoint, restorable until it is purged."""
    return with_etag(response, transitions.delete_checkpoint(context, principal, checkpoint, seen))


@router.post(routes.RESTORE)
def restore_checkpoint(
    context: Context,
    principal: Deleter,
    checkpoint: str,
    response: Response,
    seen: WhatIsSeen,
) -> CheckpointInfo:
    """Undoes a delete."""
    return with_etag(response, transitions.restore_checkpoint(context, principal, checkpoint, seen))


@router.post(routes.ACCEPT)
def accept_checkpoint(
    context: Context, principal: Admin, checkpoint: str, response: Response, if_match: IfMatch = None
) -> CheckpointInfo:
    """Commits a checkpoint that a rebuild of the catalogue found whole, without a record of its commit."""
    seen = Seen(seen_version(if_match))
    return with_etag(response, transitions.accept_checkpoint(context, principal, checkpoint, seen))


@router.put(routes.PIN)
def pin_checkpoint(
    context: Context,
    principal: Writer,
    checkpoint: str,
    response: Response,
    seen: WhatIsSeen,
    body: PinCheckpoint | None = None,
) -> CheckpointInfo:
    """Keeps a checkpoint whatever retention says."""
    reason = "" if body is None else body.reason
    return with_etag(response, transitions.pin_checkpoint(context, principal, checkpoint, seen, reason=reason))


@router.delete(routes.PIN)
def unpin_checkpoint(
    context: Context,
    principal: Writer,
    checkpoint: str,
    response: Response,
    seen: WhatIsSeen,
) -> CheckpointInfo:
    """Leaves a checkpoint to retention again."""
    return with_etag(response, transitions.unpin_checkpoint(context, principal, checkpoint, seen))


@router.put(routes.TAG)
def set_tag(
    context: Context, principal: Writer, checkpoint: str, tag: str, response: Response, only: bool = False
) -> CheckpointInfo:
    """Tags a checkpoint; with `only` the run's other checkpoints lose the tag."""
    return with_etag(response, tags.set_tag(context, principal, checkpoint, tag, only=only))


@router.delete(routes.TAG)
def remove_tag(context: Context, principal: Writer, checkpoint: str, tag: str, response: Response) -> CheckpointInfo:
    """Takes a tag from a checkpoint."""
    return with_etag(response, tags.remove_tag(context, principal, checkpoint, tag))
