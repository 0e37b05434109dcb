"""Findings: noted when an object is found damaged or lost, resolved when it is whole or needed no more."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import structlog
from sqlalchemy import and_, select, update
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.access.audit import WORKER, record
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.chunks.models import Chunk, ChunkState
from shardkeep_service.database.session_time import session_now
from shardkeep_service.inserts import insert_absent
from shardkeep_service.integrity.models import Damage, Finding, FindingCheckpoint, ObjectKind

log = structlog.get_logger("shardkeep.integrity")

_KEYS_AT_A_TIME: Final = 500
HARMED_NAMED: Final = 1_000
"""Checkpoints that a finding itself names; the others are found by `FindingCheckpoint` only."""
HEALED: Final = "healed: a save brought the chunk again"
REBUILT: Final = "rebuilt"
WHOLE_AGAIN: Final = "read again and whole"
PURGED: Final = "purged: nothing needs it any more"


def note_finding(
    session: Session,
    *,
    project_id: str,
    checkpoint_id: str,
    kind: ObjectKind,
    damage: Damage,
    object_key: str,
    digest: str | None,
    detail: str,
) -> bool:
    """Whether this object had no open finding; it has one now: in the table, the log and the audit log."""
    query = select(Finding).where(Finding.object_key == object_key, Finding.resolved_at.is_(None))
    if session.scalars(query).first() is not None:
        return False
    finding = Finding(
        project_id=project_id,
        checkpoint_id=checkpoint_id,
        kind=kind.value,
        damage=damage.value,
        object_key=object_key,
        digest=digest,
        detail=detail[:1000],
        harmed=[],
        found_at=session_now(session),
    )
    session.add(finding)
    session.flush()
    if kind is not ObjectKind.CHUNK:  # who needs a chunk is told by `note_harm`
        _connect(session, finding, [checkpoint_id])
    facts = {"kind": kind.value, "damage": damage.value, "detail": detail}
    record(session, WORKER, "object.damaged", target=object_key, project_id=project_id, detail=facts)
    log.error("object_damaged", key=object_key, checkpoint=checkpoint_id, **facts)
    return True


def note_harm(session: Session, object_key: str, checkpoint_ids: Sequence[str]) -> None:
    """Adds the checkpoints that need the object to its open finding."""
    query = select(Finding).where(Finding.object_key == object_key, Finding.resolved_at.is_(None)).with_for_update()
    for finding in session.scalars(query).all():
        finding.harmed = sorted({*finding.harmed, *checkpoint_ids})[:HARMED_NAMED]
        _connect(session, finding, checkpoint_ids)


def _connect(session: Session, finding: Finding, checkpoint_ids: Sequence[str]) -> None:
    rows = [{"checkpoint_id": checkpoint_id, "finding_id": finding.id} for checkpoint_id in checkpoint_ids]
    insert_absent(session, FindingCheckpoint, rows)


def settle_findings(session: Session, project_id: str | None = None) -> int:
    """Closes the findings of chunks that are stored again and of what nothing needs any more; gives their number."""
    return _settle_chunks(session, project_id) + _settle_purged(session, project_id)


def _settle_purged(session: Session, project_id: str | None) -> int:
    """What belonged to a checkpoint that is gone."""
    gone = (CheckpointState.PURGED.value, CheckpointState.ABORTED.value)
    query = (
        select(Finding.object_key)
        .join(Checkpoint, Checkpoint.id == Finding.checkpoint_id)
        .where(Finding.kind != ObjectKind.CHUNK.value, Finding.resolved_at.is_(None), Checkpoint.state.in_(gone))
    )
    if project_id is not None:
        query = query.where(Finding.project_id == project_id)
    return resolve_findings(session, session.scalars(query).all(), PURGED)


def _settle_chunks(session: Session, project_id: str | None) -> int:
    query = (
        select(Finding.object_key, Chunk.state)
        .outerjoin(Chunk, and_(Chunk.project_id == Finding.project_id, Chunk.digest == Finding.digest))
        .where(Finding.kind == ObjectKind.CHUNK.value, Finding.resolved_at.is_(None))
    )
    if project_id is not None:
        query = query.where(Finding.project_id == project_id)
    states = dict(session.execute(query).all())
    healed = [key for key, state in states.items() if state == ChunkState.STORED.value]
    gone = [key for key, state in states.items() if state is None]
    return resolve_findings(session, healed, HEALED) + resolve_findings(session, gone, PURGED)


def resolve_findings(session: Session, object_keys: Collection[str], resolution: str) -> int:
    """Closes the open findings of these objects; gives their number."""
    keys, closed = sorted(object_keys), 0
    for start in range(0, len(keys), _KEYS_AT_A_TIME):
        statement = (
            update(Finding)
            .where(Finding.object_key.in_(keys[start : start + _KEYS_AT_A_TIME]), Finding.resolved_at.is_(None))
            .values(resolved_at=session_now(session), resolution=resolution)
            .returning(Finding.object_key)
        )
        resolved = session.scalars(statement, execution_options={"synchronize_session": False}).all()
        for key in resolved:
            log.info("object_whole_again", key=key, resolution=resolution)
        closed += len(resolved)
    return closed


def unusable_checkpoints(session: Session, checkpoint_ids: Sequence[str]) -> set[str]:
    """Those of the checkpoints whose own manifests or index have an open finding."""
    own = (ObjectKind.MANIFEST.value, ObjectKind.INDEX.value)
    query = select(Finding.checkpoint_id).where(
        Finding.checkpoint_id.in_(checkpoint_ids), Finding.kind.in_(own), Finding.resolved_at.is_(None)
    )
    return set(session.scalars(query))
