"""Manifests arriving: checked, written to the blob store, and only then counted; the last one begins validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blake3 import blake3
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from shardkeep.errors import FormatError, VersionTooNew
from shardkeep.format.manifest import Manifest, decode_manifest
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointState, StateAnswer
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.aborting import abort_now, aborted_refusal, check_rank
from shardkeep_service.checkpoints.chunk_ids import Ids, claim_live, digests_of, find_stored, pack_ids, stale_claims
from shardkeep_service.checkpoints.expiry import open_too_long
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow, RankSession
from shardkeep_service.checkpoints.object_keys import manifest_key
from shardkeep_service.checkpoints.repository import find_checkpoint, lock_checkpoints, manifest_row
from shardkeep_service.checkpoints.sessions import not_opened
from shardkeep_service.checkpoints.states import Snapshot, load_snapshot
from shardkeep_service.chunks.reach import unproven_digests
from shardkeep_service.errors import Refusal
from shardkeep_service.moments import micros
from shardkeep_service.service_context import ServiceContext

NAMED_CHUNKS_LIMIT = 1_000
"""Missing chunks that one answer names; the rest come with the next one."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A manifest that is in the blob store and wants to be counted."""

    checkpoint_id: str
    rank: int
    content_digest: str
    body_digest: str
    object_key: str
    size_bytes: int
    chunk_ids: bytes


@dataclass(frozen=True, slots=True)
class Arrived:
    """What counting it gave. `completed` is true for the one that moved the checkpoint on to validation."""

    snapshot: Snapshot
    completed: bool


def check_manifest(
    context: ServiceContext, principal: Principal, checkpoint_id: str, rank: int, body: memoryview
) -> Arrival | StateAnswer:
    """Everything about a manifest that needs no lock; its answer already, where the same content arrived before.

    Refuses `checkpoint_aborted`, `malformed_manifest`, `step_disagrees`, `world_size_disagrees`, `chunks_missing` and
    `save_content_disagrees`. What it lets through is not stored yet.
    """
    manifest = _decode(body)
    content_digest = manifest.content_digest().hex()
    with context.database.read() as session:
        checkpoint = find_checkpoint(session, principal, checkpoint_id)
        check_rank(checkpoint, rank)
        if checkpoint.state == CheckpointState.ABORTED.value:
            raise aborted_refusal(checkpoint)
        _check_header(checkpoint, rank, manifest)
        known = manifest_row(session, checkpoint_id, rank)
        if known is not None:
            check_same_content(checkpoint, known, content_digest)
            return load_snapshot(session, checkpoint_id).answer(rank)
        ids, missing = find_stored(session, checkpoint.project_id, checkpoint_id, manifest.chunks())
        missing.extend(unproven_digests(session, principal, checkpoint, ids))
        stale = stale_claims(session, ids, since=_fresh_since(context, session))
    if missing:
        raise _chunks_missing(rank, missing)
    _renew_claims(context, rank, stale)
    body_digest = blake3(body).hexdigest()
    return Arrival(
        checkpoint_id=checkpoint_id,
        rank=rank,
        content_digest=content_digest,
        body_digest=body_digest,
        object_key=manifest_key(checkpoint.project_id, checkpoint_id, rank, body_digest),
        size_bytes=len(body),
        chunk_ids=pack_ids(ids),
    )


def _fresh_since(context: ServiceContext, session: Session) -> int:
    return context.database.now(session) - micros(context.settings.claim_repeat_seconds)


def _renew_claims(context: ServiceContext, rank: int, stale: Ids) -> None:
    """Claims what the manifest names and nobody claimed lately; refuses what collection condemned meanwhile.

    Collection counts on it: what a counted manifest names was claimed in the life of its checkpoint, also by a client
    that did not ask which chunks are present. See `garbage_collection/horizon.py`.
    """
    if not len(stale):
        return
    with context.database.write() as session:
        gone = claim_live(session, stale, now=context.database.now(session))
        digests = digests_of(session, gone)
    if len(gone):
        raise _chunks_missing(rank, sorted(digests.values()))


@dataclass(frozen=True, slots=True)
class ArrivalWriter:
    """Counts a batch of arrived manifests under the locks of their checkpoints."""

    context: ServiceContext
    owner: str
    """Who validates what this process completes."""

    def __call__(self, session: Session, arrivals: Sequence[Arrival]) -> list[Arrived | Refusal]:
        """What counting each of them gave."""
        checkpoints = lock_checkpoints(session, {arrival.checkpoint_id for arrival in arrivals})
        now = self.context.database.now(session)
        rows = _rows_of(session, arrivals)
        opened = _opened(session, arrivals)
        outcomes: list[bool | Refusal] = []
        for arrival in arrivals:
            try:
                outcomes.append(
                    self._count(session, checkpoints[arrival.checkpoint_id], rows, opened, arrival, now=now)
                )
            except Refusal as refusal:
                outcomes.append(refusal)
        session.flush()
        self._renew(session, arrivals, now=now)
        snapshots = {id_: load_snapshot(session, id_) for id_ in checkpoints}
        return [
            outcome if isinstance(outcome, Refusal) else Arrived(snapshots[arrival.checkpoint_id], outcome)
            for arrival, outcome in zip(arrivals, outcomes, strict=True)
        ]

    def _count(
        self,
        session: Session,
        checkpoint: Checkpoint,
        rows: dict[tuple[str, int], ManifestRow],
        opened: set[tuple[str, int]],
        arrival: Arrival,
        *,
        now: int,
    ) -> bool:
        """Whether this manifest completed the set."""
        key = (arrival.checkpoint_id, arrival.rank)
        if checkpoint.state == CheckpointState.ABORTED.value:
            raise aborted_refusal(checkpoint)
        if key in rows:
            check_same_content(checkpoint, rows[key], arrival.content_digest)
            return False
        if checkpoint.state != CheckpointState.OPEN.value or key not in opened:
            raise not_opened(checkpoint, arrival.rank)
        too_long = open_too_long(self.context.settings, checkpoint, now)
        if too_long is not None:
            abort_now(session, checkpoint, too_long)
            raise aborted_refusal(checkpoint)
        row = ManifestRow(
            checkpoint_id=arrival.checkpoint_id,
            rank=arrival.rank,
            content_digest=arrival.content_digest,
            body_digest=arrival.body_digest,
            object_key=arrival.object_key,
            size_bytes=arrival.size_bytes,
            chunk_ids=arrival.chunk_ids,
            arrived_at=now,
        )
        session.add(row)
        rows[key] = row
        checkpoint.arrived += 1
        if checkpoint.arrived < checkpoint.world_size:
            return False
        checkpoint.state = CheckpointState.VALIDATING.value
        checkpoint.validation_owner = self.owner
        checkpoint.validation_until = now + micros(self.context.settings.validation_lease_seconds)
        checkpoint.version += 1
        return True

    def _renew(self, session: Session, arrivals: Sequence[Arrival], *, now: int) -> None:
        ids = {arrival.checkpoint_id for arrival in arrivals}
        lease_until = now + micros(self.context.settings.lease_seconds)
        for checkpoint_id in ids:
            ranks = [arrival.rank for arrival in arrivals if arrival.checkpoint_id == checkpoint_id]
            session.execute(
                update(RankSession)
                .where(RankSession.checkpoint_id == checkpoint_id, RankSession.rank.in_(ranks))
                .values(lease_until=lease_until, missing_chunks=None),
                execution_options={"synchronize_session": False},
            )


def check_same_content(checkpoint: Checkpoint, known: ManifestRow, content_digest: str) -> None:
    """Refusal `save_content_disagrees` unless this is what the rank handed in before."""
    if known.content_digest != content_digest:
        raise Refusal(
            ErrorCode.SAVE_CONTENT_DISAGREES,
            f"rank {known.rank} handed in other content for save {checkpoint.save} (step {checkpoint.step}) before:"
            " content"
            f" digest {known.content_digest[:16]} is kept, {content_digest[:16]} is refused; another save needs"
            " another number",
            checkpoint_id=checkpoint.id,
        )


def _decode(body: memoryview) -> Manifest:
    try:
        return decode_manifest(body)
    except VersionTooNew as exc:
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"{exc}; upgrade the service before its clients") from exc
    except FormatError as exc:
        raise Refusal(ErrorCode.MALFORMED_MANIFEST, f"the manifest cannot be read: {exc}") from exc


def _check_header(checkpoint: Checkpoint, rank: int, manifest: Manifest) -> None:
    if manifest.rank != rank:
        raise Refusal(
            ErrorCode.MALFORMED_MANIFEST, f"the manifest is of rank {manifest.rank} and was sent for rank {rank}"
        )
    if manifest.world_size != checkpoint.world_size:
        raise Refusal(
            ErrorCode.WORLD_SIZE_DISAGREES,
            f"checkpoint {checkpoint.id} has world size {checkpoint.world_size}, the manifest of rank {rank} says"
            f" {manifest.world_size}; all ranks must agree, begin another attempt for another world",
        )
    if manifest.step != checkpoint.step:
        raise Refusal(
            ErrorCode.STEP_DISAGREES,
            f"checkpoint {checkpoint.id} is of step {checkpoint.step}, the manifest of rank {rank} says"
            f" {manifest.step}; all ranks must count steps and saves alike",
        )


def _chunks_missing(rank: int, missing: Sequence[str]) -> Refusal:
    return Refusal(
        ErrorCode.CHUNKS_MISSING,
        f"{len(missing)} chunks that the manifest of rank {rank} names are not stored with that size and checksum,"
        " the first"
        f" is {missing[0]}; upload them and send the manifest again",
        chunks=list(missing[:NAMED_CHUNKS_LIMIT]),
    )


def _rows_of(session: Session, arrivals: Sequence[Arrival]) -> dict[tuple[str, int], ManifestRow]:
    query = select(ManifestRow).where(
        ManifestRow.checkpoint_id.in_({arrival.checkpoint_id for arrival in arrivals}),
        ManifestRow.rank.in_({arrival.rank for arrival in arrivals}),
    )
    return {(row.checkpoint_id, row.rank): row for row in session.scalars(query)}


def _opened(session: Session, arrivals: Sequence[Arrival]) -> set[tuple[str, int]]:
    query = select(RankSession.checkpoint_id, RankSession.rank).where(
        RankSession.checkpoint_id.in_({arrival.checkpoint_id for arrival in arrivals}),
        RankSession.rank.in_({arrival.rank for arrival in arrivals}),
    )
    return set(session.execute(query))
