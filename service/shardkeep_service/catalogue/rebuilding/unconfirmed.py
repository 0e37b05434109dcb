"""Finding checkpoints that are whole and have no record of their commit: the database was lost within seconds after it,
or before it, or a purge had begun. They are shown, never the latest, and usable once somebody accepts them.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from blake3 import blake3
from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.errors import FormatError
from shardkeep.format.index import Index, IndexBuilder
from shardkeep.format.manifest import Manifest, decode_manifest
from shardkeep.protocol.identifiers import new_id
from shardkeep.protocol.messages import CheckpointReport, CheckpointState
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.catalogue import record_keys as keys
from shardkeep_service.catalogue.reading import read_object
from shardkeep_service.catalogue.rebuilding.chunks import Namer, all_listed, settle_chunks
from shardkeep_service.catalogue.rebuilding.hints import Hint, find_hint
from shardkeep_service.catalogue.rebuilding.names import (
    UNKNOWN_RUN,
    ensure_project,
    ensure_run,
    ensure_unknown_attempt,
    lost_life_attempt,
)
from shardkeep_service.catalogue.rebuilding.newest import Source
from shardkeep_service.catalogue.records import RECORD_VERSION, OpenRecord
from shardkeep_service.checkpoints.chunk_ids import Ids, pack_ids, sizes_of, union_ids, unpack_ids
from shardkeep_service.checkpoints.findings import Findings
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.integrity.index_repair import StoredIndex, make_index
from shardkeep_service.runs.models import Attempt, Run
from shardkeep_service.runs.repository import lock_run, run_named


@dataclass(frozen=True, slots=True)
class _Whole:
    """Manifests of every rank, which together are a checkpoint, and its index."""

    rows: list[ManifestRow]
    index: Index
    findings: Findings
    step: int
    world_size: int


def restore_unconfirmed(source: Source, project_id: str) -> None:
    """Every checkpoint of the project that is whole and unknown, in the order in which they were opened."""
    for checkpoint_id in source.listing.checkpoints_with_manifests(project_id):
        with source.context.database.read() as session:
            if session.get(Checkpoint, checkpoint_id) is not None:
                continue
        whole = _read_whole(source, project_id, checkpoint_id)
        if whole is None:
            source.report.incomplete += 1
            continue
        _restore(source, project_id, checkpoint_id, whole)
        source.report.unconfirmed.append(checkpoint_id)


def _restore(source: Source, project_id: str, checkpoint_id: str, whole: _Whole) -> None:
    opened = _opening_of(source, project_id, checkpoint_id, whole)
    ids = _settle(source, Namer(project_id, opened.run_id, checkpoint_id), whole)
    index = make_index(source.context, project_id=project_id, checkpoint_id=checkpoint_id, rows=whole.rows)
    with source.context.database.write() as session:
        run = lock_run(session, opened.run_id)
        row = _row(run, _placed(session, source, opened), whole, index)
        sizes = sizes_of(session, ids, checkpoint_id)
        row.stored_bytes, row.new_bytes = sizes.stored_bytes, sizes.new_bytes
        session.add(row)
        session.flush()
        session.add_all(whole.rows)


def _read_whole(source: Source, project_id: str, checkpoint_id: str) -> _Whole | None:
    """The manifests, if they are all there, are one checkpoint, and all their chunks are there too."""
    builder, findings = IndexBuilder(), Findings()
    found: dict[int, tuple[ManifestRow, Manifest]] = {}
    for rank, key, size_bytes in source.listing.manifests(checkpoint_id):
        read = _read_manifest(source, key, size_bytes)
        if read is None or read[1].rank != rank or not all_listed(source, project_id, read[1].chunks()):
            continue
        digest, manifest = read
        found[rank] = (_manifest_row(source, checkpoint_id, manifest, key, size_bytes, digest), manifest)
    world_size = next((manifest.world_size for _, manifest in found.values()), 0)
    if not world_size or set(found) != set(range(world_size)):
        return None
    try:
        for _, (_, manifest) in sorted(found.items()):
            builder.add(manifest)
            findings.add(manifest)
        index, problems = builder.finish()
    except FormatError:
        return None
    if problems:
        return None
    return _Whole([found[rank][0] for rank in range(world_size)], index, findings, found[0][1].step, world_size)


def _read_manifest(source: Source, key: str, size_bytes: int) -> tuple[str, Manifest] | None:
    """Digest and content of a manifest whose key names its bytes; None for one that is damaged."""
    try:
        body = read_object(source.context.blob_store, key, size_bytes=size_bytes)
        digest = blake3(body).hexdigest()
        return (digest, decode_manifest(body)) if key.endswith(f".{digest[:16]}") else None
    except (FormatError, BlobMissing):
        return None


def _manifest_row(
    source: Source, checkpoint_id: str, manifest: Manifest, key: str, size_bytes: int, digest: str
) -> ManifestRow:
    with source.context.database.read() as session:
        now = source.context.database.now(session)
    return ManifestRow(
        checkpoint_id=checkpoint_id, rank=manifest.rank, content_digest=manifest.content_digest().hex(),
        body_digest=digest, object_key=key, size_bytes=size_bytes, chunk_ids=b"", arrived_at=now,
    )  # fmt: skip


def _settle(source: Source, namer: Namer, whole: _Whole) -> Ids:
    for row in whole.rows:
        manifest = decode_manifest(read_object(source.context.blob_store, row.object_key, size_bytes=row.size_bytes))
        ids, _ = settle_chunks(source, namer, manifest.chunks())
        row.chunk_ids = pack_ids(np.unique(np.array(ids, np.int64)))
    return union_ids([unpack_ids(row.chunk_ids) for row in whole.rows])


def _opening_of(source: Source, project_id: str, checkpoint_id: str, whole: _Whole) -> OpenRecord:
    """Where it belongs, by the record of its opening; without one, a run of its own kind in the project."""
    record = source.newest(project_id, keys.OPENS, checkpoint_id, OpenRecord)
    hint = None if record is not None else find_hint(source, project_id, checkpoint_id)
    with source.context.database.write() as session:
        now = source.context.database.now(session)
        ensure_project(session, source, project_id, f"{UNKNOWN_RUN}-{project_id[-8:]}", now)
        if hint is not None:
            record = _opening_by_hint(session, project_id, checkpoint_id, whole, hint, now)
        if record is None:
            source.report.tell(checkpoint_id, f"nothing says which run it is of: it is in run {UNKNOWN_RUN!r}")
            record = _made_up_opening(session, source, project_id, checkpoint_id, whole, now)
        ensure_run(session, source, project_id, record.run_id, f"{UNKNOWN_RUN}-{record.run_id[-8:]}", now)
        if session.get(Attempt, record.attempt_id) is None:
            ensure_unknown_attempt(session, source, record.run_id, whole.world_size, record.attempt_id)
    return record


def _placed(session: Session, source: Source, opened: OpenRecord) -> OpenRecord:
    """In its attempt, or in one of its own where another checkpoint has its save there."""
    taken = select(Checkpoint.id).where(Checkpoint.attempt_id == opened.attempt_id, Checkpoint.save == opened.save)
    if session.scalars(taken).first() is None:
        return opened
    attempt_id = lost_life_attempt(session, source, opened.run_id, opened.world_size)
    return msgspec.structs.replace(opened, attempt_id=attempt_id)


def _opening_by_hint(
    session: Session, project_id: str, checkpoint_id: str, whole: _Whole, hint: Hint, now: int
) -> OpenRecord | None:
    """Where a damaged record of its commit says that it belongs, if there are such a run and attempt."""
    run, attempt = session.get(Run, hint.run_id), session.get(Attempt, hint.attempt_id)
    if run is None or run.project_id != project_id or attempt is None or attempt.run_id != run.id:
        return None
    return OpenRecord(
        record_version=RECORD_VERSION, checkpoint_id=checkpoint_id, project_id=project_id, run_id=run.id,
        attempt_id=attempt.id, parent_id=None, number=hint.number, save=hint.save, step=whole.step,
        world_size=whole.world_size, opened_at=now,
    )  # fmt: skip


def _made_up_opening(
    session: Session, source: Source, project_id: str, checkpoint_id: str, whole: _Whole, now: int
) -> OpenRecord:
    known = run_named(session, project_id, UNKNOWN_RUN)
    run_id = known.id if known else new_id("run")
    ensure_run(session, source, project_id, run_id, UNKNOWN_RUN, now)
    return OpenRecord(
        record_version=RECORD_VERSION, checkpoint_id=checkpoint_id, project_id=project_id, run_id=run_id,
        attempt_id=new_id("att"), parent_id=None, number=0, save=1, step=whole.step, world_size=whole.world_size,
        opened_at=now,
    )  # fmt: skip


def _row(run: Run, opened: OpenRecord, whole: _Whole, index: StoredIndex) -> Checkpoint:
    """The row: with a sequence, so that it has its place among the others once it is accepted."""
    run.sequence += 1
    number = opened.number if opened.number > run.opened else run.opened + 1
    run.opened = number
    tensors = whole.index.tensors
    report = CheckpointReport(
        divergent_buffers=list(whole.index.divergent_buffers),
        per_rank_values=whole.findings.per_rank_values(),
        values_of_some_ranks=whole.findings.values_of_some_ranks(),
    )
    return Checkpoint(
        id=opened.checkpoint_id, project_id=opened.project_id, run_id=opened.run_id, attempt_id=opened.attempt_id,
        number=number, save=opened.save, step=whole.step, world_size=whole.world_size,
        state=CheckpointState.UNCONFIRMED.value, parent_id=None, sequence=run.sequence, opened_at=opened.opened_at,
        deadline=opened.opened_at, arrived=whole.world_size, committed_at=None, index_key=index.object_key,
        index_digest=index.digest,
        raw_bytes=int((tensors.shapes.volumes * tensors.item_bytes).sum()), tensors=len(whole.index.tensor_names),
        metrics=whole.findings.metrics(), environment=whole.findings.environment, report=report.model_dump(),
        pinned=False, quarantined=False, version=1,
    )  # fmt: skip
