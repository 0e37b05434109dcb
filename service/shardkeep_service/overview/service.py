"""Putting the overview together, and remembering it for some seconds: every open page of a dashboard asks for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState, CollectionInfo, OverviewInfo, SavesInTime, WorkerInfo
from shardkeep_service.access.principal import Principal
from shardkeep_service.garbage_collection.progress import collection_state
from shardkeep_service.garbage_collection.tally import Tally
from shardkeep_service.moments import micros, moment
from shardkeep_service.overview import totals
from shardkeep_service.overview.stretches import Stretches, plan_stretches
from shardkeep_service.overview.totals import Reach, Saved
from shardkeep_service.projects.service import find_project
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.worker.models import Lease

REMEMBERED_SECONDS: Final = 5.0
REMEMBERED_LIMIT: Final = 64
"""Overviews that are kept at a time."""


@dataclass(frozen=True, slots=True)
class _Question:
    """What an overview is of: whoever asks the same gets the same."""

    reach: Reach
    sees_all: bool
    window_hours: int


@dataclass(slots=True)
class _Answered:
    """The last overview of a question, when it was ready by database time, and the lock of who makes the next one."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    at: int = 0
    info: OverviewInfo | None = None


class Overviews:
    """The overviews of one process. Of many who ask at once one counts; the others get the one before, at once.

    Where there is none before they wait for the first. So however long counting takes, it takes one request thread.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._answered: OrderedDict[_Question, _Answered] = OrderedDict()

    def overview(self, principal: Principal, project: str | None, *, window_hours: int) -> OverviewInfo:
        """Of everything the token may see, or of one project. Not for a job's token, which sees its run only."""
        principal.check_sees_whole_projects()
        question = self._question(principal, project, window_hours)
        answered = self._find(question)
        if not answered.lock.acquire(blocking=answered.info is None):
            assert answered.info is not None  # it is never taken away again
            return answered.info
        try:
            return self._fresh(answered, question)
        finally:
            answered.lock.release()

    def _fresh(self, answered: _Answered, question: _Question) -> OverviewInfo:
        """The last one while it is remembered, else a new one; under its lock."""
        with self._context.database.read() as session:
            now = self._context.database.now(session)
            if answered.info is None or not 0 <= now - answered.at < micros(REMEMBERED_SECONDS):
                answered.info = _overview(session, question, now=now)
                answered.at = self._context.database.now(session)  # from then on: whoever waited meanwhile gets it
            return answered.info

    def _question(self, principal: Principal, project: str | None, window_hours: int) -> _Question:
        reach = totals.reach_of(principal.project_ids)
        if project is not None:
            with self._context.database.read() as session:
                reach = totals.reach_of([find_project(session, principal, project).id])
        return _Question(reach, principal.project_ids is None, window_hours)

    def _find(self, question: _Question) -> _Answered:
        with self._lock:
            answered = self._answered.setdefault(question, _Answered())
            self._answered.move_to_end(question)
            if len(self._answered) > REMEMBERED_LIMIT:
                self._answered.popitem(last=False)
            return answered


def _overview(session: Session, question: _Question, *, now: int) -> OverviewInfo:
    reach, stretches = question.reach, plan_stretches(question.window_hours, now=now)
    runs, states = totals.sum_up_runs(session, reach), totals.count_states(session, reach)
    return OverviewInfo(
        projects=totals.count_projects(session, reach),
        runs=runs.runs,
        committed_checkpoints=runs.committed,
        open_checkpoints=sum(states.get(state, 0) for state in UNFINISHED),
        aborted_checkpoints=states.get(CheckpointState.ABORTED.value, 0),
        deleted_checkpoints=states.get(CheckpointState.DELETED.value, 0),
        raw_bytes=runs.raw_bytes,
        named_bytes=runs.named_bytes,
        stored_bytes=totals.sum_stored_bytes(session, reach),
        stretch_seconds=stretches.seconds,
        saves=_saves(session, reach, stretches),
        declared_bytes=totals.sum_declared_bytes(session, reach),
        quarantined_checkpoints=totals.count_quarantined(session, reach),
        open_findings=totals.count_findings(session, reach),
        collection=_collection(session) if question.sees_all else None,
        workers=_workers(session) if question.sees_all else [],
        outbox_entries=totals.count_outbox(session) if question.sees_all else None,
        now=moment(now),
    )


def _saves(session: Session, reach: Reach, stretches: Stretches) -> list[SavesInTime]:
    committed = totals.committed_by_stretch(session, reach, stretches)
    aborted = totals.aborted_by_stretch(session, reach, stretches)
    found = [committed.get(index, Saved()) for index in range(stretches.count)]
    return [
        SavesInTime(
            start=moment(stretches.start_of(index)),
            committed=saved.committed,
            aborted=aborted.get(index, 0),
            new_bytes=saved.new_bytes,
            raw_bytes=saved.raw_bytes,
        )
        for index, saved in enumerate(found)
    ]


def _collection(session: Session) -> CollectionInfo | None:
    state = collection_state(session)
    if state is None:
        return None
    tally = Tally.of_stored(state.tally)
    return CollectionInfo(
        passes=state.passes,
        started_at=moment(state.started_at),
        ended_at=moment(state.ended_at),
        running=bool(state.place),
        stopped_because=state.stopped_because,
        removed_objects=tally.removed_chunks + tally.removed_strays,
        freed_bytes=tally.removed_bytes + tally.removed_stray_bytes,
    )


def _workers(session: Session) -> list[WorkerInfo]:
    """The background tasks; none where the embedded service itself runs them, without leases."""
    leases = session.scalars(select(Lease).order_by(Lease.name))
    return [
        WorkerInfo(task=lease.name, holder=lease.owner, lease_until=moment(lease.until) if lease.owner else None)
        for lease in leases
    ]
