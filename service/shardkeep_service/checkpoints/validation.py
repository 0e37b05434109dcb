"""Validating a checkpoint whose manifests are all in: reads and judges them outside any transaction, and writes the
index.

What it finds wrong with the manifests is a `Rejected`; chunks that are gone are `Damaged`; else `Validated` goes to
commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3
from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.errors import FormatError
from shardkeep.format.index import Index, IndexBuilder, IndexProblem, encode_index
from shardkeep.format.segments import SliceKind
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import AbortInfo, CheckpointReport
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.checkpoints.aborting import NAMED_LIMIT
from shardkeep_service.checkpoints.chunk_ids import ChunkSizes, Ids, not_stored, sizes_of, union_ids, unpack_ids
from shardkeep_service.checkpoints.direct_chunks import accept_uploaded
from shardkeep_service.checkpoints.findings import Findings
from shardkeep_service.checkpoints.index_cache import IndexCache
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.checkpoints.object_keys import index_key
from shardkeep_service.checkpoints.stored_manifests import read_manifests
from shardkeep_service.service_context import ServiceContext

KeepAlive = Callable[[], None]
"""Called now and then while validating: renews the lease, or raises because somebody else has it."""


@dataclass(frozen=True, slots=True)
class Validated:
    """All that the commit transaction needs to know."""

    checkpoint_id: str
    manifest_digests: dict[int, str]
    """Body digest of each rank's manifest as it was validated."""
    chunk_ids: Ids
    sizes: ChunkSizes
    index_key: str
    index_digest: str
    raw_bytes: int
    tensors: int
    metrics: dict[str, Any]
    environment: dict[str, Any]
    report: CheckpointReport


@dataclass(frozen=True, slots=True)
class Rejected:
    """The manifests are no checkpoint: it is aborted."""

    abort: AbortInfo


@dataclass(frozen=True, slots=True)
class Damaged:
    """Chunks were lost since the manifests arrived: the ranks send them again."""

    chunk_ids: Ids


@dataclass(frozen=True, slots=True)
class _Inputs:
    checkpoint: Checkpoint
    parent: Checkpoint | None
    rows: Sequence[ManifestRow]


@dataclass(slots=True)
class _Judged:
    index: Index
    problems: Sequence[IndexProblem]
    findings: Findings = field(default_factory=Findings)


def validate(
    context: ServiceContext, indexes: IndexCache, checkpoint_id: str, *, keep_alive: KeepAlive
) -> Validated | Rejected | Damaged:
    """Judges the arrived manifests. BlobStoreUnavailable passes through: the lease lapses and it is tried again."""
    with context.database.read() as session:
        inputs = _load(session, checkpoint_id)
        ids = union_ids([unpack_ids(row.chunk_ids) for row in inputs.rows])
        gone = not_stored(session, ids)
        sizes = sizes_of(session, ids, checkpoint_id)
    if len(gone):
        project_id = inputs.checkpoint.project_id
        accept_uploaded(context, project_id, checkpoint_id, gone, keep_alive=keep_alive)
        with context.database.read() as session:
            gone = not_stored(session, gone)
    if len(gone):
        return Damaged(gone)
    try:
        judged = _judge(context, inputs.rows, keep_alive=keep_alive)
    except (FormatError, BlobMissing) as exc:
        return Rejected(AbortInfo(code=ErrorCode.CHUNK_DAMAGED, reason=f"a stored manifest cannot be read back: {exc}"))
    keep_alive()
    if judged.problems:
        return Rejected(_abort_of(judged.problems))
    return _accept(context, indexes, inputs, judged, ids, sizes)


def _load(session: Session, checkpoint_id: str) -> _Inputs:
    checkpoint = session.scalars(select(Checkpoint).where(Checkpoint.id == checkpoint_id)).one()
    parent = session.get(Checkpoint, checkpoint.parent_id) if checkpoint.parent_id else None
    query = select(ManifestRow).where(ManifestRow.checkpoint_id == checkpoint_id).order_by(ManifestRow.rank)
    return _Inputs(checkpoint, parent, session.scalars(query).all())


def _judge(context: ServiceContext, rows: Sequence[ManifestRow], *, keep_alive: KeepAlive) -> _Judged:
    builder, findings = IndexBuilder(), Findings()
    for manifest in read_manifests(context, rows):
        builder.add(manifest)
        findings.add(manifest)
        keep_alive()
    index, problems = builder.finish()
    return _Judged(index, problems, findings)


def _accept(
    context: ServiceContext, indexes: IndexCache, inputs: _Inputs, judged: _Judged, ids: Ids, sizes: ChunkSizes
) -> Validated:
    checkpoint, index = inputs.checkpoint, judged.index
    encoded = encode_index(index)
    digest = blake3(encoded).hexdigest()
    key = index_key(checkpoint.project_id, checkpoint.id, digest)
    context.blob_store.put(key, memoryview(encoded))
    indexes.put(key, index)
    return Validated(
        checkpoint_id=checkpoint.id,
        manifest_digests={row.rank: row.body_digest for row in inputs.rows},
        chunk_ids=ids,
        sizes=sizes,
        index_key=key,
        index_digest=digest,
        raw_bytes=int((index.tensors.shapes.volumes * index.tensors.item_bytes).sum()),
        tensors=len(index.tensor_names),
        metrics=judged.findings.metrics(),
        environment=judged.findings.environment,
        report=_report(indexes, inputs, judged),
    )


def _report(indexes: IndexCache, inputs: _Inputs, judged: _Judged) -> CheckpointReport:
    warnings: list[str] = []
    gone: list[str] = []
    parent = inputs.parent
    if parent is not None and parent.index_key is not None:
        try:
            gone = _tensors_gone(indexes.get(parent.index_key), judged.index)
        except (FormatError, BlobMissing) as exc:
            warnings.append(f"the names of the parent {parent.id} could not be compared: {exc}")
    return CheckpointReport(
        divergent_buffers=list(judged.index.divergent_buffers),
        per_rank_values=judged.findings.per_rank_values(),
        values_of_some_ranks=judged.findings.values_of_some_ranks(),
        tensors_gone=gone,
        warnings=warnings,
    )


def _tensors_gone(parent: Index, index: Index) -> list[str]:
    """Tensors that the parent had and nobody names now; the bytes of big values are no tensors."""
    now = set(index.tensor_names)
    kinds = parent.tensors.kinds.tolist()
    return [
        name
        for name, kind in zip(parent.tensor_names, kinds, strict=True)
        if kind != SliceKind.VALUE and name not in now
    ]


def _abort_of(problems: Sequence[IndexProblem]) -> AbortInfo:
    """The first problem gives code and words; ranks and tensors are those of every problem of that code."""
    first = problems[0]
    alike = [problem for problem in problems if problem.code == first.code]
    ranks = sorted({rank for problem in alike for rank in problem.ranks})
    more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
    return AbortInfo(
        code=first.code,
        reason=f"tensor {first.tensor}: {first.detail}{more}",
        rank=ranks[0] if ranks else None,
        ranks=ranks[:NAMED_LIMIT],
        tensors=[problem.tensor for problem in alike][:NAMED_LIMIT],
    )
