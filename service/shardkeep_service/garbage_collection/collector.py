"""One pass of collection: its phases in order, step by step, at a rate, going on where it was left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Final

import structlog

from shardkeep_service.garbage_collection.bucket_check import CollectionStopped, check_bucket
from shardkeep_service.garbage_collection.condemning import condemn_unneeded
from shardkeep_service.garbage_collection.horizon import grace_horizon
from shardkeep_service.garbage_collection.progress import (
    Progress,
    begin_or_resume,
    end_pass,
    note_stopped,
    note_strays_looked_for,
    save_progress,
    strays_looked_for_at,
)
from shardkeep_service.garbage_collection.purge import clear_aborted, purge_deleted
from shardkeep_service.garbage_collection.removing import remove_condemned
from shardkeep_service.garbage_collection.strays import look_for_strays
from shardkeep_service.garbage_collection.survey import measure_candidates
from shardkeep_service.garbage_collection.tally import Tally
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.worker.loop import Turn

log = structlog.get_logger("shardkeep.collection")

PHASES: Final = ("purge", "aborted", "condemn", "remove", "strays")
_SAVE_EVERY_STEPS: Final = 50


def collect(context: ServiceContext, turn: Turn) -> None:
    """The worker's part: one pass, or the rest of one. Nothing while the bucket is not as the database says."""
    measure_candidates(context)  # the lag grows while nothing is collected
    try:
        for objects in steps(context):
            turn.check()
            turn.wait(objects / context.settings.collection_objects_per_second)
    except CollectionStopped as stopped:
        note_stopped_because(context, str(stopped))


def steps(context: ServiceContext) -> Iterator[int]:
    """The steps of one pass, or of the rest of one; yields the objects handled, between any two of its transactions and
    store requests. Raises CollectionStopped before anything is touched.

    Leaving off after any step loses nothing; a second pass at the same time harms nothing.
    """
    check_bucket(context)
    note_stopped_because(context, None)
    yield 0
    with context.database.write() as session:
        progress = begin_or_resume(session, now=context.database.now(session))
    log.info("collection_goes_on" if progress.phase else "collection_begins", number=progress.number)
    for phase in PHASES[PHASES.index(progress.phase) if progress.phase else 0 :]:
        if phase != progress.phase:
            progress.phase, progress.place = phase, {}
        _save(context, progress)
        yield from _phase(context, phase, progress)
    with context.database.write() as session:
        end_pass(session, progress, now=context.database.now(session))
    measure_candidates(context)
    log.info("collection_ended", number=progress.number, **asdict(progress.tally))


def _phase(context: ServiceContext, phase: str, progress: Progress) -> Iterator[int]:
    if phase == "strays":
        yield from _strays(context, progress)
        return
    acts: dict[str, Callable[[ServiceContext, Tally], Iterator[int]]] = {
        "purge": purge_deleted,
        "aborted": clear_aborted,
        "condemn": condemn_unneeded,
        "remove": remove_condemned,
    }
    for number, objects in enumerate(acts[phase](context, progress.tally), start=1):
        if number % _SAVE_EVERY_STEPS == 0:
            _save(context, progress)
        yield objects


def _strays(context: ServiceContext, progress: Progress) -> Iterator[int]:
    """Rarer than the rest: listing a bucket costs a request per thousand objects."""
    with context.database.write() as session:
        looked_at, now = strays_looked_for_at(session), context.database.now(session)
    if looked_at is not None and looked_at >= grace_horizon(context.settings, now) and not progress.place:
        return
    check_bucket(context)
    for number, objects in enumerate(look_for_strays(context, progress), start=1):
        if number % _SAVE_EVERY_STEPS == 0:
            _save(context, progress)
        yield objects
    with context.database.write() as session:
        note_strays_looked_for(session, now=context.database.now(session))


def _save(context: ServiceContext, progress: Progress) -> None:
    with context.database.write() as session:
        save_progress(session, progress)


def note_stopped_because(context: ServiceContext, reason: str | None) -> None:
    """Makes it seen that collection is stopped, or goes on."""
    with context.database.write() as session:
        is_news = note_stopped(session, reason, now=context.database.now(session))
    context.metrics.collection_stopped.set(0 if reason is None else 1)
    if reason is not None:
        log.error("collection_stopped", reason=reason)
    elif is_news:
        log.info("collection_allowed_again")
