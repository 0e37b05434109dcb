"""Sessions: one rank's lease on an open checkpoint, renewed by every request of the rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import String, bindparam, case, select, update
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningUpdate

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import StateAnswer
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.aborting import check_rank
from shardkeep_service.checkpoints.models import Checkpoint, RankSession
from shardkeep_service.checkpoints.repository import unknown_checkpoint
from shardkeep_service.checkpoints.states import load_snapshot
from shardkeep_service.database.base import BigInt
from shardkeep_service.database.row_lists import pack_rows, row_list
from shardkeep_service.errors import Refusal
from shardkeep_service.moments import micros
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.service_context import ServiceContext


@dataclass(frozen=True, slots=True)
class Beat:
    """One rank says that it is still there."""

    principal: Principal
    checkpoint_id: str
    rank: int


@dataclass(frozen=True, slots=True)
class BeatWriter:
    """Writes a batch of beats: one update and one look per checkpoint, whatever the number of ranks."""

    context: ServiceContext

    def __call__(self, session: Session, beats: Sequence[Beat]) -> list[StateAnswer | Refusal]:
        """The state of each beat's checkpoint, or why it cannot be told."""
        now = self.context.database.now(session)
        ranks: dict[str, set[int]] = defaultdict(set)
        for beat in beats:
            ranks[beat.checkpoint_id].add(beat.rank)
        lease_until = now + micros(self.context.settings.lease_seconds)
        # Sessions first: they go when their checkpoint ends, so one that is gone by now has an end that is seen below.
        renewed = {id_: renew(session, id_, those, lease_until=lease_until) for id_, those in ranks.items()}
        found = {row.id: row for row in session.scalars(select(Checkpoint).where(Checkpoint.id.in_(ranks)))}
        snapshots = {checkpoint_id: load_snapshot(session, checkpoint_id) for checkpoint_id in found}
        answers: list[StateAnswer | Refusal] = []
        for beat in beats:
            try:
                check_beat(found.get(beat.checkpoint_id), beat, renewed.get(beat.checkpoint_id, set()))
                answers.append(snapshots[beat.checkpoint_id].answer(beat.rank))
            except Refusal as refusal:
                answers.append(refusal)
        return answers


def renew(session: Session, checkpoint_id: str, ranks: Collection[int], *, lease_until: int) -> set[int]:
    """Moves the leases of these ranks; returns those that have a session. A lease never moves back.

    It waits for nobody: a row that another transaction has locked is being renewed by it, or its checkpoint is ending.
    So renewals, which lock many rows in whatever order, are part of no deadlock.
    """
    mine = (RankSession.checkpoint_id == checkpoint_id, RankSession.rank.in_(ranks))
    known = set(session.scalars(select(RankSession.rank).where(*mine)))
    free = (
        select(RankSession.rank)
        .where(*mine, RankSession.lease_until < lease_until)
        .with_for_update(skip_locked=True)
        .cte("free")
    )
    statement = update(RankSession).where(mine[0], RankSession.rank.in_(select(free.c.rank)))
    statement = statement.values(lease_until=lease_until)
    session.execute(statement, execution_options={"synchronize_session": False})
    return known


@dataclass(frozen=True, slots=True)
class OfferedBytes:
    """Stored bytes of the chunks that a rank offered, and of those among them that were present."""

    offered: int = 0
    present: int = 0

    def __add__(self, other: OfferedBytes) -> OfferedBytes:
        return OfferedBytes(self.offered + other.offered, self.present + other.present)


def renew_and_count(
    session: Session,
    checkpoint_id: str,
    offered: Mapping[int, OfferedBytes],
    *,
    lease_until: int,
    waits: bool = False,
) -> set[int]:
    """Moves the leases of these ranks like `renew`, and adds what each offered, in one statement.

    Returns the ranks that it was not counted for: their session was locked, or is gone. With `waits` it waits for the
    locks: in a transaction that holds no other, and for one rank, that is part of no deadlock either.
    """
    dialect = session.get_bind().dialect.name
    counts = pack_rows((rank, one.offered, one.present) for rank, one in sorted(offered.items()))
    values = {"of_checkpoint": checkpoint_id, "until": lease_until, "counts": counts}
    counted = session.connection().execute(_counting(dialect, waits=waits), values)
    return offered.keys() - set(counted.scalars())


@cache
def _counting(dialect: str, *, waits: bool) -> ReturningUpdate[Any]:
    rows = row_list(dialect, "counts", (int, int, int))
    rank, offered, present = rows.columns
    mine = RankSession.checkpoint_id == bindparam("of_checkpoint", type_=String)
    free = (
        select(RankSession.rank)
        .where(mine, RankSession.rank.in_(select(rank).select_from(rows.source)))
        .with_for_update(skip_locked=not waits)
        .cte("free")
    )
    until = bindparam("until", type_=BigInt)
    return (
        update(RankSession)
        .where(mine, RankSession.rank == rank, RankSession.rank.in_(select(free.c.rank)))
        .values(
            lease_until=case((RankSession.lease_until < until, until), else_=RankSession.lease_until),
            offered_bytes=RankSession.offered_bytes + offered,
            present_bytes=RankSession.present_bytes + present,
        )
        .returning(RankSession.rank)
    )


def check_beat(checkpoint: Checkpoint | None, beat: Beat, renewed: set[int]) -> None:
    """Refuses a beat of an unknown checkpoint, of a rank it cannot have, or of one that never opened it."""
    if checkpoint is None or not beat.principal.sees_run(checkpoint.project_id, checkpoint.run_id):
        raise unknown_checkpoint()
    check_rank(checkpoint, beat.rank)
    if checkpoint.state in UNFINISHED and beat.rank not in renewed:
        raise not_opened(checkpoint, beat.rank)


def not_opened(checkpoint: Checkpoint, rank: int) -> Refusal:
    """What a rank is told that speaks of a checkpoint it has not opened."""
    return Refusal(
        ErrorCode.CHECKPOINT_NOT_OPEN,
        f"rank {rank} has not opened checkpoint {checkpoint.id}; open (attempt {checkpoint.attempt_id}, save"
        f" {checkpoint.save}) first",
        state=checkpoint.state,
    )
