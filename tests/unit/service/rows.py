"""Builders of database rows for service tests: a project with a run, its attempt and an open checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from shardkeep.protocol.identifiers import new_id, new_launch_id
from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow, RankSession
from shardkeep_service.database.database import Database
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.models import Attempt, Run

HOUR = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Place:
    """The ids of one checkpoint and what is around it."""

    project_id: str
    project: str
    run_id: str
    attempt_id: str
    checkpoint_id: str


def add_place(
    database: Database,
    *,
    project: str = "project",
    run: str = "run",
    state: CheckpointState = CheckpointState.OPEN,
    world_size: int = 1,
) -> Place:
    """Adds one of each; the attempt is the run's current one and every rank has opened."""
    with database.write() as session:
        now = database.now(session)
        found = session.query(Project).filter_by(name=project).one_or_none()
        project_id = found.id if found else new_id("prj")
        place = Place(project_id, project, new_id("run"), new_id("att"), new_id("ckp"))
        if found is None:
            session.add(Project(id=project_id, name=project, created_at=now))
            session.flush()
        session.add(Run(id=place.run_id, project_id=project_id, name=run, created_at=now, attempts=1))
        session.flush()
        session.get_one(Run, place.run_id).current_attempt_id = place.attempt_id
        session.add(
            Attempt(
                id=place.attempt_id, run_id=place.run_id, number=1, launch_id=new_launch_id(), ordinal=0,
                world_size=world_size, labels={}, created_at=now, decision="fresh", passed_over=[],
            )
        )  # fmt: skip
        session.flush()
        session.add(_checkpoint(place, state=state, world_size=world_size, now=now))
        session.flush()
        for rank in range(world_size):
            session.add(
                RankSession(checkpoint_id=place.checkpoint_id, rank=rank, opened_at=now, lease_until=now + HOUR)
            )
    return place


def set_state(database: Database, checkpoint_id: str, state: CheckpointState) -> None:
    """Moves a checkpoint to a state, whatever it was."""
    with database.write() as session:
        session.get_one(Checkpoint, checkpoint_id).state = state.value


def add_manifest(session: Session, checkpoint_id: str, rank: int, chunk_ids: bytes) -> None:
    """An arrived manifest that names these chunks."""
    session.add(
        ManifestRow(
            checkpoint_id=checkpoint_id, rank=rank, content_digest="0" * 64, body_digest="0" * 64, object_key="none",
            size_bytes=1, chunk_ids=chunk_ids, arrived_at=0,
        )
    )  # fmt: skip


def _checkpoint(place: Place, *, state: CheckpointState, world_size: int, now: int) -> Checkpoint:
    return Checkpoint(
        id=place.checkpoint_id, project_id=place.project_id, run_id=place.run_id, attempt_id=place.attempt_id, number=1,
        save=1, step=1, world_size=world_size, state=state.value, opened_at=now, deadline=now + HOUR, metrics={},
        environment={}, sequence=1 if state is CheckpointState.COMMITTED else None,
    )  # fmt: skip
