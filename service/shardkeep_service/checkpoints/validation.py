"""Validating a checkpoint whose manifests are all in: reads and judges them outside any transaction, and writes the
index.

What it finds wrong with the manifests is a `Rejected`; chunks that are gone are `Damaged`; else `Validated` goes to
commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from blake3 import blake3
from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.errors import FormatError
from shardkeep.format.index import Index, IndexBuilder, IndexProblem, encode_index
from shardkeep.format.manifest import Manifest, decode_manifest
from shardkeep.format.segments import SliceKind
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import AbortInfo, CheckpointReport
from shardkeep_service.blob_store.blob_store import BlobStore
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.checkpoints.aborting import NAMED_LIMIT
from shardkeep_service.checkpoints.chunk_ids import ChunkSizes, Ids, not_stored, sizes_of, union_ids, unpack_ids
from shardkeep_service.checkpoints.findings import Findings
from shardkeep_service.checkpoints.index_cache import IndexCache
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.checkpoints.object_keys import index_key
from shardkeep_service.service_context import ServiceContext

READ_AHEAD: Final = 8
"""Manifests being read while one is merged."""

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
    for manifest in _read_manifests(context, rows):
        builder.add(manifest)
        findings.add(manifest)
        keep_alive()
    index, problems = builder.finish()
    return _Judged(index, problems, findings)


def _read_manifests(context: ServiceContext, rows: Sequence[ManifestRow]) -> Iterator[Manifest]:
    """The manifests in the order of `rows`, a few read ahead: an object store answers in tens of milliseconds."""
    ahead: deque[Future[Manifest]] = deque()
    waiting = iter(rows)
    for row in islice(waiting, READ_AHEAD):
        ahead.append(context.pools.storage.submit(read_manifest, context.blob_store, row))
    while ahead:
        manifest = ahead.popleft().result()
        for row in islice(waiting, 1):
            ahead.append(context.pools.storage.submit(read_manifest, context.blob_store, row))
        yield manifest


def read_manifest(blob_store: BlobStore, row: ManifestRow) -> Manifest:
    """A stored manifest; FormatError when its bytes are not those that arrived."""
    return decode_manifest(read_manifest_body(blob_store, row))


def read_manifest_body(blob_store: BlobStore, row: ManifestRow) -> memoryview:
    """The encoded bytes of a stored manifest, checked against the digest of what arrived."""
    body = memoryview(bytearray(row.size_bytes))
    blob_store.read_into(row.object_key, 0, body)
    if blake3(body).hexdigest() != row.body_digest:
        raise FormatError(f"the stored manifest of rank {row.rank} at {row.object_key} is damaged")
    return body


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
