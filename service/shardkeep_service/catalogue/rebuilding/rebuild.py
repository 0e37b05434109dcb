"""A rebuild: the catalogue of a bucket in an empty database, or what a restored backup of it lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import select

from shardkeep.errors import FormatError
from shardkeep_service.access.audit import OPERATOR, record
from shardkeep_service.access.usage import recount
from shardkeep_service.catalogue.owner import find_owner, take_over_bucket
from shardkeep_service.catalogue.rebuilding.chunks import mend_known_chunks
from shardkeep_service.catalogue.rebuilding.commits import restore_commits
from shardkeep_service.catalogue.rebuilding.lineage import restore_lineage
from shardkeep_service.catalogue.rebuilding.listing import BucketListing
from shardkeep_service.catalogue.rebuilding.names import restore_attempts, restore_project, restore_runs
from shardkeep_service.catalogue.rebuilding.newest import Source
from shardkeep_service.catalogue.rebuilding.purged_since import settle_unrecorded
from shardkeep_service.catalogue.rebuilding.report import RebuildReport
from shardkeep_service.catalogue.rebuilding.unconfirmed import restore_unconfirmed
from shardkeep_service.catalogue.state import (
    begin_rebuild,
    catalogue_id,
    end_rebuild,
    pause_retention,
    rebuild_unfinished,
)
from shardkeep_service.chunks.healing import release_healed_checkpoints
from shardkeep_service.projects.models import Project
from shardkeep_service.service_context import ServiceContext

PAUSED = "the catalogue was rebuilt from the bucket: look through what came back, then resume retention"


class RebuildRefused(Exception):
    """The database is not one that a rebuild may write to."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Told as the rebuild goes on."""

    listed: Callable[[int], None] = lambda _: None
    project: Callable[[int, int], None] = lambda _done, _all: None


def rebuild(context: ServiceContext, *, add: bool = False, progress: Progress | None = None) -> RebuildReport:
    """Restores what the bucket knows and the database does not. Run it again after it was interrupted.

    `add` says that the database may hold something: a restored backup, to which only what is unknown is added and what
    the bucket knows better is brought up to date. No service or worker may run beside it.
    """
    progress = progress or Progress()
    is_known = _check_database(context, add=add)
    with context.database.write() as session:
        begin_rebuild(session)
        pause_retention(session, PAUSED)
    report = RebuildReport()
    with BucketListing(context.blob_store, on_progress=progress.listed) as listing:
        report.objects = listing.objects
        source = Source(context, listing, report)
        projects = listing.projects()
        for done, project_id in enumerate(projects):
            progress.project(done, len(projects))
            _rebuild_project(source, project_id, is_known=is_known)
        progress.project(len(projects), len(projects))
    owner = take_over_bucket(context)
    with context.database.write() as session:
        end_rebuild(session)
        record(session, OPERATOR, "catalogue.rebuild", target=owner, detail=_counts(report))
    return report


def _rebuild_project(source: Source, project_id: str, *, is_known: bool) -> None:
    if is_known:
        mend_known_chunks(source, project_id)
    restore_project(source, project_id)
    restore_runs(source, project_id)
    restore_attempts(source, project_id)
    restore_commits(source, project_id)
    restore_lineage(source, project_id)
    if is_known:
        settle_unrecorded(source, project_id)
        release_healed_checkpoints(source.context, project_id)
    restore_unconfirmed(source, project_id)
    with source.context.database.write() as session:
        if session.get(Project, project_id) is not None:
            recount(session, [project_id])


def _check_database(context: ServiceContext, *, add: bool) -> bool:
    """Whether the database held something before any rebuild; RebuildRefused where that was not said."""
    with context.database.read() as session:
        own, unfinished = catalogue_id(session), rebuild_unfinished(session)
        is_empty = session.scalars(select(Project.id).limit(1)).first() is None
    if is_empty or (unfinished and not add):
        return False
    if not add:
        raise RebuildRefused(
            "the database is not empty. Give an empty one to make the catalogue again from the bucket alone, or say"
            " --add if this is a restored backup of the bucket's own database: then what it lacks is added"
        )
    try:
        owner = find_owner(context.blob_store)
    except FormatError:
        owner = None  # it is claimed again at the end
    if owner is not None and own is not None and owner.catalogue_id != own:
        raise RebuildRefused(
            f"the database is that of catalogue {own}, the bucket belongs to {owner.catalogue_id}: they do not go"
            " together; give the bucket's own database, or an empty one"
        )
    return True


def _counts(report: RebuildReport) -> dict[str, int]:
    return {
        "projects": report.projects,
        "runs": report.runs,
        "checkpoints": report.checkpoints,
        "changed": report.changed,
        "unconfirmed": len(report.unconfirmed),
        "quarantined": len(report.quarantined),
        "problems": report.problem_count,
    }
