"""Where bytes go to and come from: the checkpoint of a request, and whether it takes or gives chunks now."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.aborting import aborted_refusal
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.checkpoints.reading import find_readable
from shardkeep_service.checkpoints.repository import find_checkpoint
from shardkeep_service.errors import Refusal
from shardkeep_service.runs.attempts import check_current
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.runs.models import Attempt, Run


@dataclass(frozen=True, slots=True)
class UploadPlace:
    """The checkpoint that chunks are uploaded for. One that is finished takes no new ones."""

    project_id: str
    run_id: str
    checkpoint_id: str
    world_size: int
    state: str

    @property
    def takes_chunks(self) -> bool:
        """Whether it is open, or validating and being healed."""
        return self.state in UNFINISHED


def upload_place(session: Session, principal: Principal, checkpoint_id: str) -> UploadPlace:
    """The place; refuses an unknown or aborted checkpoint and one of a fenced attempt."""
    checkpoint = find_checkpoint(session, principal, checkpoint_id)
    attempt = session.get_one(Attempt, checkpoint.attempt_id)
    check_current(session.get_one(Run, checkpoint.run_id), attempt)
    if checkpoint.state == CheckpointState.ABORTED:
        raise aborted_refusal(checkpoint)
    return UploadPlace(checkpoint.project_id, checkpoint.run_id, checkpoint.id, checkpoint.world_size, checkpoint.state)


def not_open(place: UploadPlace) -> Refusal:
    """What a finished checkpoint answers to a new chunk."""
    detail = (
        f"checkpoint {place.checkpoint_id} is {place.state} and takes no more chunks; save again under another number"
    )
    return Refusal(ErrorCode.CHECKPOINT_NOT_OPEN, detail, state=place.state)


def finished_meanwhile(place: UploadPlace) -> Refusal:
    """What an upload is told whose checkpoint was finished before it was recorded."""
    detail = f"checkpoint {place.checkpoint_id} was finished while the chunk was stored; save again"
    return Refusal(ErrorCode.CHECKPOINT_NOT_OPEN, detail)


def readable_checkpoint(session: Session, principal: Principal, checkpoint_id: str) -> Checkpoint:
    """The checkpoint, if it may be read; refuses `unknown_checkpoint` and `checkpoint_not_committed`."""
    return find_readable(session, principal, checkpoint_id)
