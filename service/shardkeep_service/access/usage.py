"""What projects use: the bytes of their chunks' rows, counted where rows come and go.

A chunk counts from the transaction that makes its row (also a pending one: the bytes may arrive any moment) to the
transaction in which collection removes it, whatever its state meanwhile; so only three places count. The sum is split
over a few slots, one row each, and a transaction adds to a random one: replicas that store chunks of one project at the
same time seldom wait for each other. `recount` sets the sum right after a rebuild.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Final

from sqlalchemy import func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.access.models import ProjectUsage
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.chunks.models import Chunk

SLOTS: Final = 16
_COUNTED: Final = (CheckpointState.OPEN.value, CheckpointState.VALIDATING.value, CheckpointState.COMMITTED.value)


def add_usage(session: Session, project_id: str, size_bytes: int) -> None:
    """Counts rows of chunks that this transaction made (or, negative, removed).

    Call it last in the transaction: the row it locks is then held for the commit only, and whoever holds it waits for
    no other row.
    """
    if not size_bytes:
        return
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    statement = insert(ProjectUsage).values(
        project_id=project_id, slot=secrets.randbelow(SLOTS), stored_bytes=size_bytes
    )
    session.execute(
        statement.on_conflict_do_update(
            index_elements=[ProjectUsage.project_id, ProjectUsage.slot],
            set_={"stored_bytes": ProjectUsage.stored_bytes + statement.excluded.stored_bytes},
        )
    )


def used_bytes(session: Session, project_id: str) -> int:
    """The bytes a project uses: at most SLOTS rows are read."""
    query = select(func.coalesce(func.sum(ProjectUsage.stored_bytes), 0)).where(ProjectUsage.project_id == project_id)
    return int(session.scalars(query).one())


def used_checkpoints(session: Session, project_id: str) -> int:
    """The checkpoints of a project that are open, being validated or committed."""
    query = select(func.count()).where(Checkpoint.project_id == project_id, Checkpoint.state.in_(_COUNTED))
    return session.scalars(query).one()


def counted_bytes(session: Session, project_id: str) -> int:
    """The truth that `used_bytes` keeps count of: reads every chunk of the project."""
    query = select(func.coalesce(func.sum(Chunk.size_bytes), 0)).where(Chunk.project_id == project_id)
    return int(session.scalars(query).one())


def recount(session: Session, project_ids: Collection[str]) -> None:
    """Sets the sums to what the rows of the chunks say; for a rebuilt database, and harmless beside writers.

    All slots are locked first: a writer whose rows are committed is in the sum, one that waits for its slot adds to it.
    """
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    for project_id in sorted(project_ids):
        empty = [{"project_id": project_id, "slot": slot, "stored_bytes": 0} for slot in range(SLOTS)]
        session.execute(insert(ProjectUsage).values(empty).on_conflict_do_nothing())
        slots = select(ProjectUsage).where(ProjectUsage.project_id == project_id).order_by(ProjectUsage.slot)
        session.execute(slots.with_for_update()).all()
        mine = ProjectUsage.project_id == project_id
        session.execute(update(ProjectUsage).where(mine, ProjectUsage.slot != 0).values(stored_bytes=0))
        total = counted_bytes(session, project_id)
        session.execute(update(ProjectUsage).where(mine, ProjectUsage.slot == 0).values(stored_bytes=total))
