"""How far collection is: kept in the database, so that any worker goes on where another one left off."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy.orm import Session

from shardkeep_service.garbage_collection.models import CollectionProgress
from shardkeep_service.garbage_collection.tally import Tally
from shardkeep_service.inserts import insert_if_absent

COLLECTION: Final = "collection"
STRAYS: Final = "strays"
"""The row of the last look through the bucket, which is rarer than a pass."""


@dataclass(slots=True)
class Progress:
    """A pass under way, or the beginning of one. `phase` is empty at its start."""

    number: int
    phase: str = ""
    place: dict[str, Any] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)


def begin_or_resume(session: Session, *, now: int) -> Progress:
    """The pass that did not end, or a new one."""
    row = _row(session, COLLECTION)
    if not row.place:
        row.passes += 1
        row.started_at, row.tally = now, {}
        return Progress(row.passes)
    place = dict(row.place)
    return Progress(row.passes, place.pop("phase"), place, Tally.of_stored(row.tally))


def save_progress(session: Session, progress: Progress) -> None:
    """Notes where the pass goes on."""
    row = _row(session, COLLECTION)
    row.place = {"phase": progress.phase, **progress.place}
    row.tally = progress.tally.stored()


def end_pass(session: Session, progress: Progress, *, now: int) -> None:
    """Notes that the pass went through; the next one begins anew."""
    row = _row(session, COLLECTION)
    row.place, row.tally, row.ended_at = {}, progress.tally.stored(), now


def strays_looked_for_at(session: Session) -> int | None:
    """When the bucket was last looked through to its end."""
    return _row(session, STRAYS).ended_at


def note_strays_looked_for(session: Session, *, now: int) -> None:
    """Notes that the bucket was looked through to its end."""
    _row(session, STRAYS).ended_at = now


def note_stopped(session: Session, reason: str | None, *, now: int) -> bool:
    """Notes why nothing is collected, or (None) that all is well; whether that is news."""
    row = _row(session, COLLECTION)
    if row.stopped_because == reason:
        return False
    row.stopped_because = reason
    row.stopped_at = None if reason is None else now
    return True


def collection_state(session: Session) -> CollectionProgress | None:
    """The row of collection, for showing; None before the first pass."""
    return session.get(CollectionProgress, COLLECTION)


def _row(session: Session, name: str) -> CollectionProgress:
    found = session.get(CollectionProgress, name)
    if found is None:
        insert_if_absent(session, CollectionProgress, {"name": name, "passes": 0, "place": {}, "tally": {}})
        found = session.get_one(CollectionProgress, name)
    return found
