"""Reading a checkpoint: its manifests, its tensors, and plans for loading it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import Final

from sqlalchemy.orm import Session

from shardkeep.errors import FormatError, VersionTooNew
from shardkeep.format.dtypes import dtype_coded
from shardkeep.format.index import Index
from shardkeep.format.load_plan import RequestColumns, decode_request_columns, encode_load_plan, plan_load
from shardkeep.format.names import plain_text, split_name
from shardkeep.format.segments import SliceKind
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointState, Page, TensorInfo
from shardkeep_service.access.principal import Principal
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.checkpoints.index_cache import IndexCache
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.checkpoints.repository import arrived_ranks, find_checkpoint, manifest_row
from shardkeep_service.checkpoints.stored_manifests import read_manifest_body
from shardkeep_service.checkpoints.views import missing_ranks
from shardkeep_service.cursors import bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.errors import Refusal
from shardkeep_service.integrity.checkpoint_reading import repair_index
from shardkeep_service.runs.models import Attempt, Run
from shardkeep_service.service_context import ServiceContext

_LIST: Final = "tensors"
NAMED_RANKS_LIMIT: Final = 100


def find_readable(session: Session, principal: Principal, checkpoint_id: str) -> Checkpoint:
    """The checkpoint, if it may be read; Refusal `checkpoint_not_committed` with its state and missing ranks if not.

    Readable is what is committed, and what was deleted since the run's current attempt decided to resume from it: all
    its
    ranks resume from the same checkpoint, whatever goes meanwhile. Quarantined ones are read to save what can be saved.
    """
    checkpoint = find_checkpoint(session, principal, checkpoint_id)
    if checkpoint.state == CheckpointState.COMMITTED.value:
        return checkpoint
    if checkpoint.state == CheckpointState.DELETED.value and _is_being_resumed(session, checkpoint):
        return checkpoint
    raise not_committed(session, checkpoint)


def not_committed(session: Session, checkpoint: Checkpoint) -> Refusal:
    """What a reader of a checkpoint that is not whole is told."""
    missing = missing_ranks(checkpoint, arrived_ranks(session, [checkpoint.id])[checkpoint.id])
    parts = f", the manifests of {len(missing)} of {checkpoint.world_size} ranks are missing" if missing else ""
    return Refusal(
        ErrorCode.CHECKPOINT_NOT_COMMITTED,
        f"checkpoint {checkpoint.id} of step {checkpoint.step} is {checkpoint.state}{parts}; only a committed one can"
        " be read,"
        " ask the run for its latest",
        checkpoint_id=checkpoint.id,
        state=checkpoint.state,
        ranks=missing[:NAMED_RANKS_LIMIT],
        abort=checkpoint.abort,
    )


def get_manifest(context: ServiceContext, principal: Principal, checkpoint_id: str, rank: int) -> memoryview:
    """One rank's encoded manifest of a readable checkpoint, checked against its digest."""
    with context.database.read() as session:
        checkpoint = find_readable(session, principal, checkpoint_id)
        row = manifest_row(session, checkpoint_id, rank)
    if row is None:
        raise Refusal(
            ErrorCode.UNKNOWN_MANIFEST,
            f"checkpoint {checkpoint_id} has manifests of ranks 0 to {checkpoint.world_size - 1}, none of rank {rank}",
        )
    try:
        return read_manifest_body(context.blob_store, row)
    except (FormatError, BlobMissing) as exc:
        raise Refusal(ErrorCode.CHUNK_DAMAGED, f"{exc}; choose another checkpoint") from exc


def plan(
    context: ServiceContext, indexes: IndexCache, principal: Principal, checkpoint_id: str, body: memoryview
) -> bytes:
    """The encoded load plan for an encoded load request."""
    request = _decode_request(body)
    index = open_index(context, indexes, principal, checkpoint_id)
    try:
        return encode_load_plan(plan_load(index, request))
    except FormatError as exc:
        raise Refusal(ErrorCode.MALFORMED_REQUEST, f"the load request does not fit the checkpoint: {exc}") from exc


def list_tensors(
    context: ServiceContext,
    indexes: IndexCache,
    principal: Principal,
    checkpoint_id: str,
    *,
    prefix: str,
    search: str,
    limit: int,
    cursor: str | None,
) -> Page[TensorInfo]:
    """The tensors by name; `prefix` is a joined name of whole leading parts, `search` any part of a name in any case.

    Either is empty for all.
    """
    size = bounded_limit(limit)
    filters = {"checkpoint": checkpoint_id, "prefix": prefix, "search": search}
    position = decode_cursor(cursor, _LIST, filters, (str,))
    index = open_index(context, indexes, principal, checkpoint_id)
    names = _names(index, prefix)
    start = bisect_right(names, position[0]) if position else 0
    folded = search.casefold()
    found = list(islice((name for name in islice(names, start, None) if is_found(name, folded)), size + 1))
    following = encode_cursor(_LIST, filters, (found[size - 1],)) if len(found) > size else None
    return Page[TensorInfo](items=[_tensor_info(index, name) for name in found[:size]], next_cursor=following)


def is_found(name: str, folded: str) -> bool:
    """Whether a name contains the text, which is case-folded: as it is stored or as a person would write it."""
    return not folded or folded in name.casefold() or ("\\" in name and folded in plain_text(name).casefold())


def open_index(context: ServiceContext, indexes: IndexCache, principal: Principal, checkpoint_id: str) -> Index:
    """The index of a readable checkpoint; one that is damaged is made again from the manifests."""
    with context.database.read() as session:
        key = find_readable(session, principal, checkpoint_id).index_key
    assert key is not None  # written before the commit
    return stored_index(context, indexes, checkpoint_id, key)


def stored_index(context: ServiceContext, indexes: IndexCache, checkpoint_id: str, key: str) -> Index:
    """The index stored under `key`, or one made in its place; Refusal `chunk_damaged` where that cannot be done."""
    try:
        return indexes.get(key)
    except (FormatError, BlobMissing) as exc:
        repaired = repair_index(context, checkpoint_id)
        if repaired is None:
            raise Refusal(ErrorCode.CHUNK_DAMAGED, f"{exc}; choose another checkpoint") from exc
        return indexes.get(repaired)


def _is_being_resumed(session: Session, checkpoint: Checkpoint) -> bool:
    run = session.get_one(Run, checkpoint.run_id)
    current = session.get(Attempt, run.current_attempt_id) if run.current_attempt_id else None
    return current is not None and current.decision == checkpoint.id


def _decode_request(body: memoryview) -> RequestColumns:
    try:
        return decode_request_columns(body)
    except VersionTooNew as exc:
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"{exc}; upgrade the service before its clients") from exc
    except FormatError as exc:
        raise Refusal(ErrorCode.MALFORMED_REQUEST, f"the load request cannot be read: {exc}") from exc


def _names(index: Index, prefix: str) -> Sequence[str]:
    if not prefix:
        return index.tensor_names
    try:
        return index.names_with_prefix(split_name(prefix))
    except FormatError as exc:
        raise Refusal(ErrorCode.MALFORMED_REQUEST, f"the prefix is no joined name: {exc}") from exc


def _tensor_info(index: Index, name: str) -> TensorInfo:
    row = index.find(name)
    assert row is not None  # the names come from this index
    tensors, starts = index.tensors, index.lookup.tensor_starts
    return TensorInfo(
        name=name,
        dtype=dtype_coded(int(tensors.dtype_codes[row])).name,
        shape=list(tensors.shapes.shape(row)),
        kind=SliceKind(int(tensors.kinds[row])).name.lower(),
        raw_bytes=int(tensors.shapes.volumes[row] * tensors.item_bytes[row]),
        slices=int(starts[row + 1] - starts[row]),
    )
