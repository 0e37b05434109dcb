"""Writing the records that the outbox asks for, and removing those of purged checkpoints.

Records are written outside any transaction, oldest change first, and never overwritten. Two processes may do it at the
same time: what they write is the same, or carries another version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.blob_store.errors import BlobExists
from shardkeep_service.catalogue import record_building as building
from shardkeep_service.catalogue import record_keys as keys
from shardkeep_service.catalogue.outbox import RecordKind, outbox_lag_seconds
from shardkeep_service.catalogue.records import encode_record
from shardkeep_service.checkpoints.models import Checkpoint, OutboxEntry
from shardkeep_service.checkpoints.repository import lock_checkpoint
from shardkeep_service.moments import micros
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.runs.models import Attempt, Run
from shardkeep_service.service_context import ServiceContext

log = structlog.get_logger("shardkeep.catalogue")

_BATCH: Final = 50
_KINDS: Final = tuple(kind.value for kind in RecordKind)
_IDS_AT_A_TIME: Final = 500
_KEPT_SECONDS: Final = 86_400
"""How long entries stay after they are done: for whoever asks what happened."""
COMMITTED_ONCE: Final = (
    CheckpointState.COMMITTED.value,
    CheckpointState.DELETED.value,
    CheckpointState.PURGED.value,
)
RECORDED: Final = (CheckpointState.COMMITTED.value, CheckpointState.DELETED.value)
"""The states whose checkpoints have records."""


@dataclass(frozen=True, slots=True)
class _Work:
    """One entry of the outbox with the record that it asks for; None where there is nothing to say any more."""

    entry_id: int
    kind: RecordKind
    subject_id: str
    key: str | None = None
    body: memoryview | None = None


def write_commit_records(context: ServiceContext) -> int:
    """Writes what the outbox asks for; gives the number of records."""
    written = 0
    try:
        while batch := _pending(context):
            done = [work for work in batch if _write(context, work)]
            written += sum(work.key is not None for work in done)
            _remove_records_of_purged(context, _tick_off(context, done))
    finally:
        _measure_lag(context)
    if written:
        _forget_old_entries(context)
    return written


def delete_records(context: ServiceContext, project_id: str, checkpoint_id: str) -> None:
    """Removes all records of a checkpoint: the first thing that a purge or the collection of an aborted one removes.

    From then on a rebuild does not take it for committed. Idempotent. A checkpoint that is restored after all is given
    a record again by `record_checkpoint`.
    """
    found = [blob.key for blob in context.blob_store.list(keys.commit_records_prefix(project_id, checkpoint_id))]
    context.blob_store.delete([*found, keys.open_record_key(project_id, checkpoint_id)])


def unknown_commit_records(context: ServiceContext, project_id: str) -> list[str]:
    """Ids of checkpoints of which the bucket has a commit or a version that the database does not know: it is newer.
    Nothing may be collected then until `rebuild --add` was run.

    Sorted. Costs one listing of the project's records. Records of checkpoints known to be purged are left-overs of a
    race between a purge and the outbox: they are removed here.
    """
    unknown: list[str] = []
    for batch in _in_batches(_recorded_versions(context, project_id)):
        with context.database.read() as session:
            query = select(Checkpoint.id, Checkpoint.state, Checkpoint.version)
            query = query.where(Checkpoint.id.in_([checkpoint_id for checkpoint_id, _ in batch]))
            rows = {row[0]: row for row in session.execute(query)}
        for checkpoint_id, version in batch:
            _, state, known_version = rows.get(checkpoint_id, (checkpoint_id, "", -1))
            if state == CheckpointState.PURGED.value:
                delete_records(context, project_id, checkpoint_id)
            elif state not in COMMITTED_ONCE or version > known_version:
                unknown.append(checkpoint_id)
    return unknown


def _recorded_versions(context: ServiceContext, project_id: str) -> Iterator[tuple[str, int]]:
    """Each checkpoint that has records, with the highest version among them."""
    last, highest = "", 0
    for blob in context.blob_store.list(f"{project_id}/{keys.COMMITS}/"):
        parsed = keys.parse_record_key(blob.key)
        if parsed is None:
            continue
        if last and parsed.subject_id != last:
            yield last, highest
            highest = 0
        last, highest = parsed.subject_id, max(highest, parsed.version)
    if last:
        yield last, highest


def _in_batches(ids: Iterable[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    batch: list[tuple[str, int]] = []
    for found in ids:
        batch.append(found)
        if len(batch) == _IDS_AT_A_TIME:
            yield batch
            batch = []
    if batch:
        yield batch


def _pending(context: ServiceContext) -> list[_Work]:
    """The oldest entries of kinds that this version knows; a newer one's are for its own workers."""
    query = select(OutboxEntry).where(OutboxEntry.done_at.is_(None), OutboxEntry.kind.in_(_KINDS))
    with context.database.read() as session:
        return [_work_of(session, entry) for entry in session.scalars(query.order_by(OutboxEntry.id).limit(_BATCH))]


def _work_of(session: Session, entry: OutboxEntry) -> _Work:
    kind, subject_id = RecordKind(entry.kind), entry.subject_id or entry.checkpoint_id or ""
    record = _record_of(session, kind, subject_id, entry.created_at)
    if record is None:
        return _Work(entry.id, kind, subject_id)
    key, body = record
    return _Work(entry.id, kind, subject_id, key, body)


def _record_of(session: Session, kind: RecordKind, subject_id: str, at: int) -> tuple[str, memoryview] | None:
    """Key and body of the subject's record as it is now, if it is; `at` versions what counts no versions itself."""
    match kind:
        case RecordKind.CHECKPOINT | RecordKind.OPEN:
            return _record_of_checkpoint(session, subject_id)
        case RecordKind.ATTEMPT:
            attempt = session.get(Attempt, subject_id)
            if attempt is None:
                return None
            project_id = session.get_one(Run, attempt.run_id).project_id
            key = keys.attempt_record_key(project_id, attempt.id, 1 if attempt.decision is None else 2)
            return key, encode_record(building.attempt_record(session, attempt, project_id=project_id))
        case RecordKind.RUN:
            run = session.get(Run, subject_id)
            if run is None:
                return None
            return keys.run_record_key(run.project_id, run.id, at), encode_record(building.run_record(run))
        case RecordKind.PROJECT:
            project = session.get(Project, subject_id)
            if project is None:
                return None
            return keys.project_record_key(project.id, at), encode_record(building.project_record(project))


def _record_of_checkpoint(session: Session, checkpoint_id: str) -> tuple[str, memoryview] | None:
    checkpoint = session.get(Checkpoint, checkpoint_id)
    if checkpoint is None:
        return None
    if checkpoint.state in RECORDED:
        key = keys.commit_record_key(checkpoint.project_id, checkpoint_id, checkpoint.version)
        return key, encode_record(building.commit_record(session, checkpoint_id))
    if checkpoint.state in UNFINISHED:
        key = keys.open_record_key(checkpoint.project_id, checkpoint_id)
        return key, encode_record(building.open_record(checkpoint))
    return None


def _write(context: ServiceContext, work: _Work) -> bool:
    """Whether the entry is done: written now, or there is nothing to write."""
    if work.key is None or work.body is None:
        return True
    try:
        context.blob_store.put(work.key, work.body)
    except BlobExists:
        return _settle_conflict(context, work)
    return True


def _settle_conflict(context: ServiceContext, work: _Work) -> bool:
    """Another content lies under the key. Whether the entry is done for all that.

    A checkpoint's version moves past every version in the bucket, and the next turn writes it there: what this database
    says is newer than what an earlier life of it, before a restored backup say, or a damaged object holds. The other
    subjects are versioned by time: a later entry of the same subject follows, or the same fact was written before.
    """
    log.warning("record_differs", key=work.key, kind=work.kind.value)
    if work.kind is not RecordKind.CHECKPOINT:
        return True
    with context.database.read() as session:
        project_id = session.get_one(Checkpoint, work.subject_id).project_id
    prefix = keys.commit_records_prefix(project_id, work.subject_id)
    parsed = [keys.parse_record_key(blob.key) for blob in context.blob_store.list(prefix)]
    highest = max((found.version for found in parsed if found is not None), default=0)
    with context.database.write() as session:
        checkpoint = lock_checkpoint(session, work.subject_id)
        checkpoint.version = max(checkpoint.version, highest + 1)
    return False


def _tick_off(context: ServiceContext, done: Sequence[_Work]) -> list[tuple[str, str]]:
    """Marks the entries done; gives (project, id) of checkpoints that were purged or aborted while we wrote."""
    ids = {work.subject_id for work in done if work.kind in (RecordKind.CHECKPOINT, RecordKind.OPEN) and work.key}
    with context.database.write() as session:
        session.execute(
            update(OutboxEntry)
            .where(OutboxEntry.id.in_([work.entry_id for work in done]))
            .values(done_at=context.database.now(session)),
            execution_options={"synchronize_session": False},
        )
        gone = (CheckpointState.PURGED.value, CheckpointState.ABORTED.value)
        query = select(Checkpoint.project_id, Checkpoint.id).where(Checkpoint.id.in_(ids), Checkpoint.state.in_(gone))
        return [(project_id, checkpoint_id) for project_id, checkpoint_id in session.execute(query)]


def _remove_records_of_purged(context: ServiceContext, gone: Iterable[tuple[str, str]]) -> None:
    for project_id, checkpoint_id in gone:
        delete_records(context, project_id, checkpoint_id)


def _measure_lag(context: ServiceContext) -> None:
    with context.database.read() as session:
        context.metrics.outbox_lag.set(outbox_lag_seconds(session))


def _forget_old_entries(context: ServiceContext) -> None:
    with context.database.write() as session:
        before = context.database.now(session) - micros(_KEPT_SECONDS)
        session.execute(delete(OutboxEntry).where(OutboxEntry.done_at < before))
