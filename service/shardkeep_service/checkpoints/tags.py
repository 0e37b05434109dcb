"""Tags of a checkpoint: words that people and policies find it by. Setting one again changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointInfo, CheckpointState
from shardkeep_service.access import audit
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.deletion import note_change
from shardkeep_service.checkpoints.models import Checkpoint, CheckpointTag
from shardkeep_service.checkpoints.reading import not_committed
from shardkeep_service.checkpoints.repository import find_checkpoint, lock_checkpoint, lock_checkpoints
from shardkeep_service.checkpoints.views import checkpoint_info
from shardkeep_service.errors import Refusal
from shardkeep_service.inserts import insert_if_absent
from shardkeep_service.projects.service import check_name
from shardkeep_service.runs.repository import lock_run
from shardkeep_service.service_context import ServiceContext

TAGS_LIMIT: Final = 100
"""Tags of one checkpoint."""


def set_tag(
    context: ServiceContext, principal: Principal, checkpoint_id: str, tag: str, *, only: bool
) -> CheckpointInfo:
    """Tags a committed checkpoint; with `only` the run's other checkpoints lose the tag at once."""
    check_name(tag, kind="tag")
    run_id = _run_of(context, principal, checkpoint_id)
    with context.database.write() as session:
        lock_run(session, run_id)
        others = _others(session, run_id, checkpoint_id, tag) if only else []
        locked = lock_checkpoints(session, [checkpoint_id, *others])
        checkpoint = locked[checkpoint_id]
        if checkpoint.state != CheckpointState.COMMITTED.value:
            raise not_committed(session, checkpoint)
        for other in others:
            _remove(session, principal, locked[other], tag)
        row = {"checkpoint_id": checkpoint.id, "tag": tag, "run_id": run_id, "set_at": context.database.now(session)}
        if insert_if_absent(session, CheckpointTag, row):
            _check_count(session, checkpoint)
            _note(session, principal, "checkpoint.tag", checkpoint, tag)
        session.flush()
        return checkpoint_info(session, checkpoint_id)


def remove_tag(context: ServiceContext, principal: Principal, checkpoint_id: str, tag: str) -> CheckpointInfo:
    """Takes a tag from a checkpoint in any state; nothing where it has none."""
    run_id = _run_of(context, principal, checkpoint_id)
    with context.database.write() as session:
        lock_run(session, run_id)
        _remove(session, principal, lock_checkpoint(session, checkpoint_id), tag)
        session.flush()
        return checkpoint_info(session, checkpoint_id)


def _run_of(context: ServiceContext, principal: Principal, checkpoint_id: str) -> str:
    with context.database.read() as session:
        return find_checkpoint(session, principal, checkpoint_id).run_id


def _others(session: Session, run_id: str, checkpoint_id: str, tag: str) -> Sequence[str]:
    """The run's other checkpoints with this tag; the run is locked, so none gets or loses it meanwhile."""
    query = select(CheckpointTag.checkpoint_id).where(
        CheckpointTag.run_id == run_id, CheckpointTag.tag == tag, CheckpointTag.checkpoint_id != checkpoint_id
    )
    return session.scalars(query).all()


def _remove(session: Session, principal: Principal, checkpoint: Checkpoint, tag: str) -> None:
    mine = (CheckpointTag.checkpoint_id == checkpoint.id, CheckpointTag.tag == tag)
    removed = session.scalars(delete(CheckpointTag).where(*mine).returning(CheckpointTag.tag)).first()
    if removed is not None:
        _note(session, principal, "checkpoint.untag", checkpoint, tag)


def _note(session: Session, principal: Principal, action: str, checkpoint: Checkpoint, tag: str) -> None:
    note_change(session, checkpoint)
    detail = {"tag": tag, "step": checkpoint.step}
    audit.record(session, principal, action, target=checkpoint.id, project_id=checkpoint.project_id, detail=detail)


def _check_count(session: Session, checkpoint: Checkpoint) -> None:
    query = select(func.count()).select_from(CheckpointTag).where(CheckpointTag.checkpoint_id == checkpoint.id)
    if session.scalars(query).one() > TAGS_LIMIT:
        raise Refusal(
            ErrorCode.MALFORMED_REQUEST,
            f"a checkpoint has at most {TAGS_LIMIT} tags; remove some of {checkpoint.id} first",
        )
