"""SQL of checkpoints, sessions and arrived manifests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Select, delete, func, select
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access.principal import UNSEEN, Principal
from shardkeep_service.checkpoints.models import Checkpoint, CheckpointTag, ManifestRow, RankSession
from shardkeep_service.chunks.models import ChunkProof
from shardkeep_service.errors import Refusal
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.models import Attempt, Run


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """A checkpoint with the names around it."""

    checkpoint: Checkpoint
    attempt_number: int
    run: str
    project: str


def places() -> Select[Checkpoint, int, str, str]:
    """The query of `CheckpointPlace` rows, to be narrowed."""
    return (
        select(
            Checkpoint,
            Attempt.number,
            func.coalesce(Run.deleted_name, Run.name),
            func.coalesce(Project.deleted_name, Project.name),
        )
        .join(Attempt, Attempt.id == Checkpoint.attempt_id)
        .join(Run, Run.id == Checkpoint.run_id)
        .join(Project, Project.id == Checkpoint.project_id)
    )


def load_places(session: Session, query: Select[Checkpoint, int, str, str]) -> list[CheckpointPlace]:
    """The rows of a narrowed `places` query."""
    return [CheckpointPlace(*row) for row in session.execute(query)]


def find_checkpoint(session: Session, principal: Principal, checkpoint_id: str) -> Checkpoint:
    """The checkpoint; Refusal `unknown_checkpoint` where it is absent or hidden from the token."""
    checkpoint = session.get(Checkpoint, checkpoint_id)
    if checkpoint is None:
        raise unknown_checkpoint()
    principal.check_run(checkpoint.project_id, checkpoint.run_id, code=ErrorCode.UNKNOWN_CHECKPOINT)
    return checkpoint


def unknown_checkpoint() -> Refusal:
    """The same words for absent and for hidden."""
    return Refusal(ErrorCode.UNKNOWN_CHECKPOINT, UNSEEN[ErrorCode.UNKNOWN_CHECKPOINT])


def lock_checkpoint(session: Session, checkpoint_id: str) -> Checkpoint:
    """The checkpoint as it is now, locked until the transaction ends. Lock the run first where both are needed."""
    query = (
        select(Checkpoint)
        .where(Checkpoint.id == checkpoint_id)
        .with_for_update(key_share=True)  # rows that refer to it may be inserted meanwhile
        .execution_options(populate_existing=True)
    )
    return session.scalars(query).one()


def lock_checkpoints(session: Session, checkpoint_ids: Collection[str]) -> dict[str, Checkpoint]:
    """Several checkpoints, locked in the order of their ids, so that two such transactions never deadlock."""
    query = (
        select(Checkpoint)
        .where(Checkpoint.id.in_(checkpoint_ids))
        .order_by(Checkpoint.id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    return {checkpoint.id: checkpoint for checkpoint in session.scalars(query)}


def arrived_ranks(session: Session, checkpoint_ids: Collection[str]) -> dict[str, set[int]]:
    """The ranks of each checkpoint whose manifest has arrived."""
    found: dict[str, set[int]] = defaultdict(set)
    query = select(ManifestRow.checkpoint_id, ManifestRow.rank).where(ManifestRow.checkpoint_id.in_(checkpoint_ids))
    for checkpoint_id, rank in session.execute(query):
        found[checkpoint_id].add(rank)
    return found


def manifest_row(session: Session, checkpoint_id: str, rank: int) -> ManifestRow | None:
    """One arrived manifest."""
    return session.get(ManifestRow, (checkpoint_id, rank))


def tags_of(session: Session, checkpoint_ids: Collection[str]) -> dict[str, list[str]]:
    """The tags of each checkpoint, sorted."""
    found: dict[str, list[str]] = {checkpoint_id: [] for checkpoint_id in checkpoint_ids}
    query = select(CheckpointTag.checkpoint_id, CheckpointTag.tag).where(CheckpointTag.checkpoint_id.in_(found))
    for checkpoint_id, tag in session.execute(query.order_by(CheckpointTag.tag)):
        found[checkpoint_id].append(tag)
    return found


def opened_ranks(session: Session, checkpoint_id: str) -> set[int]:
    """The ranks that opened a checkpoint that is not finished yet."""
    return set(session.scalars(select(RankSession.rank).where(RankSession.checkpoint_id == checkpoint_id)))


def count_sessions(session: Session, checkpoint_id: str) -> int:
    """How many ranks opened a checkpoint that is not finished yet."""
    query = select(func.count()).select_from(RankSession).where(RankSession.checkpoint_id == checkpoint_id)
    return session.scalars(query).one()


def end_sessions(session: Session, checkpoint_ids: Sequence[str]) -> None:
    """Forgets the sessions and proofs of finished checkpoints: nobody renews them and nothing waits for them."""
    session.execute(delete(RankSession).where(RankSession.checkpoint_id.in_(checkpoint_ids)))
    session.execute(delete(ChunkProof).where(ChunkProof.checkpoint_id.in_(checkpoint_ids)))


def step_is_committed(session: Session, attempt_id: str, step: int, *, besides: str | None = None) -> bool:
    """Whether another committed checkpoint of the attempt has this step."""
    query = select(Checkpoint.id).where(
        Checkpoint.attempt_id == attempt_id, Checkpoint.step == step, Checkpoint.state == "committed"
    )
    if besides is not None:
        query = query.where(Checkpoint.id != besides)
    return session.scalars(query.limit(1)).first() is not None
