"""What the control plane keeps for the life of a process: write batches, shared looks, indexes, validations."""

from __future__ import annotations

import secrets
from typing import Final

from fastapi import Request

from shardkeep.protocol.messages import OpenAnswer, StateAnswer
from shardkeep_service.checkpoints.arrival import Arrival, ArrivalWriter, Arrived
from shardkeep_service.checkpoints.differences import DifferenceCache, make_difference_cache
from shardkeep_service.checkpoints.expiry import forgive_outage
from shardkeep_service.checkpoints.index_cache import IndexCache
from shardkeep_service.checkpoints.opening import Opening, OpeningWriter
from shardkeep_service.checkpoints.sessions import Beat, BeatWriter
from shardkeep_service.checkpoints.shared_look import SharedLook
from shardkeep_service.checkpoints.states import Snapshot, load_snapshot
from shardkeep_service.checkpoints.turns import Turns
from shardkeep_service.checkpoints.validator import Validator
from shardkeep_service.checkpoints.write_batch import WriteBatch
from shardkeep_service.runs.inventories import OwnerPlans, Posted, Posting, load_posted, write_postings
from shardkeep_service.runs.save_requests import RequestLook, load_look
from shardkeep_service.service_context import ServiceContext

REQUEST_AGE_SECONDS: Final = 5.0
"""One rank of every run that trains waits all the time, so a request made at another replica is seen a little later."""


class ControlPlane:
    """One per application, made by `main.create_app`."""

    def __init__(self, context: ServiceContext) -> None:
        database, board = context.database, context.board
        self._context: Final = context
        owner = secrets.token_hex(16)
        self.indexes: Final = IndexCache(context.blob_store)
        self.differences: Final[DifferenceCache] = make_difference_cache()
        self.turns: Final = Turns()
        self.impact_turns: Final = Turns(limit=1, waiting=2)
        """Of their own: each reads what a whole project names, which may take minutes."""
        self.validator: Final = Validator(context, self.indexes, owner=owner)
        self.openings: Final = WriteBatch[Opening, OpenAnswer](database, OpeningWriter(context))
        self.beats: Final = WriteBatch[Beat, StateAnswer](database, BeatWriter(context))
        self.arrivals: Final = WriteBatch[Arrival, Arrived](database, ArrivalWriter(context, owner))
        self.postings: Final = WriteBatch[Posting, Posting](database, write_postings)
        self.owner_plans: Final = OwnerPlans(database)
        self.states: Final = SharedLook[Snapshot](board, self._load_state)
        self.inventories: Final = SharedLook[Posted](board, lambda key: load_posted(database, key))
        self.save_requests: Final = SharedLook[RequestLook](
            board, lambda key: load_look(database, key), max_age_seconds=REQUEST_AGE_SECONDS
        )

    def start(self) -> None:
        """Takes over what a crash left. On SQLite there is no other process, so nobody's lease is waited for."""
        only_one = self._context.database.is_sqlite
        if only_one:
            forgive_outage(self._context)
        self.validator.take_over(also_live=only_one)

    def close(self) -> None:
        """Lets running validations end."""
        self.validator.close()

    def _load_state(self, checkpoint_id: str) -> Snapshot:
        with self._context.database.read() as session:
            return load_snapshot(session, checkpoint_id)


async def get_control_plane(request: Request) -> ControlPlane:
    """FastAPI dependency: the control plane of this application."""
    control_plane = request.app.state.control_plane
    assert isinstance(control_plane, ControlPlane)
    return control_plane
