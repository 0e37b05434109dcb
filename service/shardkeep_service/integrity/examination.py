"""An examination of a whole service, one fact a line: database, object store, catalogue, records, scrub, settings."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.errors import FormatError
from shardkeep_service.blob_store.errors import BlobStoreError
from shardkeep_service.blob_store.file_system_probe import probe_directory
from shardkeep_service.blob_store.findings import Finding, Level
from shardkeep_service.blob_store.stores import objects_directory
from shardkeep_service.catalogue import record_keys as keys
from shardkeep_service.catalogue.commit_records import unknown_commit_records
from shardkeep_service.catalogue.outbox import outbox_lag_seconds
from shardkeep_service.catalogue.owner import find_owner
from shardkeep_service.catalogue.state import (
    catalogue_id,
    rebuild_unfinished,
    retention_paused,
    try_writing,
)
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.database.migrate import MigrationRefused, check_schema
from shardkeep_service.integrity.coverage import load_coverage
from shardkeep_service.integrity.settings_check import examine_settings
from shardkeep_service.moments import MICROS_PER_SECOND
from shardkeep_service.projects.models import Project
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings

_SKEW_SECONDS: Final = 5
_LAG_WARN_SECONDS: Final = 60
_LAG_FAIL_SECONDS: Final = 900


def examine(context: ServiceContext) -> list[Finding]:
    """Everything; what cannot be reached fails, and the rest is looked at all the same."""
    found, is_usable = _database(context)
    found.extend(_store(context.settings))
    store_fails = any(finding.level is Level.FAIL for finding in found)
    if is_usable:
        parts: list[Callable[[ServiceContext], list[Finding]]] = [_outbox, _scrub_and_settings]
        if not store_fails:
            parts[:0] = [_owner, _unknown_records]
        for part in parts:
            found.extend(_guarded(part, context))
    return found


def _guarded(part: Callable[[ServiceContext], list[Finding]], context: ServiceContext) -> list[Finding]:
    try:
        return part(context)
    except (BlobStoreError, DatabaseFailed) as error:
        return [Finding(part.__name__.lstrip("_"), Level.FAIL, str(error), "see that it answers, then look again")]


def _database(context: ServiceContext) -> tuple[list[Finding], bool]:
    """What of the database, and whether its tables can be read."""
    try:
        revision = check_schema(context.database)
        with context.database.write() as session:
            try_writing(session)
            skew = context.database.now(session) / MICROS_PER_SECOND - time.time()
    except MigrationRefused as error:
        return [Finding("database", Level.FAIL, str(error), "bring the schema up to date")], False
    except DatabaseFailed as error:
        return [Finding("database", Level.FAIL, str(error), "see that it runs and that the URL is right")], False
    kind = f"SQLite ({context.database.journal})" if context.database.is_sqlite else "PostgreSQL"
    found = [Finding("database", Level.OK, f"{kind} at revision {revision} takes writes")]
    if abs(skew) > _SKEW_SECONDS:
        detail = f"its clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
        advice = "leases use its clock alone; set both by NTP, so that logs can be compared"
        found.append(Finding("database_clock", Level.WARN, detail, advice))
    else:
        found.append(Finding("database_clock", Level.OK, "it agrees with this machine's"))
    return found, True


def _store(settings: Settings) -> list[Finding]:
    if settings.s3.bucket is None:
        return probe_directory(objects_directory(settings))
    from shardkeep_service.blob_store.s3.opening import open_s3
    from shardkeep_service.blob_store.s3.probe import probe

    try:
        return probe(open_s3(settings.s3, storage_threads=1).connection).findings
    except BlobStoreError as error:
        return [Finding("bucket", Level.FAIL, str(error), "see that it answers and that the credentials are right")]


def _owner(context: ServiceContext) -> list[Finding]:
    with context.database.read() as session:
        own = catalogue_id(session)
        found = _unfinished(session)
    try:
        owner = find_owner(context.blob_store)
    except FormatError as error:
        advice = "`shardkeep-service rebuild --add` with the bucket's own database claims it again"
        return [Finding("catalogue", Level.FAIL, f"the bucket's marker is damaged: {error}", advice), *found]
    if owner is None:
        return [Finding("catalogue", Level.OK, "nobody owns the bucket yet; the first start does"), *found]
    if owner.catalogue_id != own:
        detail = f"the bucket belongs to catalogue {owner.catalogue_id}, this database to {own or 'none'}"
        advice = "give the bucket's own database; if it is lost, rebuild into an empty one"
        return [Finding("catalogue", Level.FAIL, detail, advice), *found]
    return [Finding("catalogue", Level.OK, f"the bucket belongs to this database ({own})"), *found]


def _unfinished(session: Session) -> list[Finding]:
    found = []
    if rebuild_unfinished(session):
        advice = "run `shardkeep-service rebuild` again: it goes on where it was"
        found.append(Finding("rebuild", Level.FAIL, "a rebuild has not ended", advice))
    paused = retention_paused(session)
    if paused is not None:
        found.append(Finding("retention", Level.WARN, f"paused: {paused}", "`shardkeep-service resume-retention`"))
    return found


def _unknown_records(context: ServiceContext) -> list[Finding]:
    """Commits that only the bucket knows: collection stands still until they are added."""
    listed = {parsed.subject_id for blob in context.blob_store.list(keys.PROJECTS)
              if (parsed := keys.parse_record_key(blob.key))}  # fmt: skip
    with context.database.read() as session:
        known = set(session.scalars(select(Project.id)))
    unknown = [f"project {project_id}" for project_id in sorted(listed - known)]
    for project_id in sorted(known):
        unknown.extend(unknown_commit_records(context, project_id))
    if not unknown:
        return [Finding("records", Level.OK, "the database knows every commit that has a record")]
    detail = f"{len(unknown)} commits or projects are in the bucket and not in the database, the first is {unknown[0]}"
    advice = "the database is older than the bucket: stop the service and run `shardkeep-service rebuild --add`"
    return [Finding("records", Level.FAIL, detail, advice)]


def _outbox(context: ServiceContext) -> list[Finding]:
    with context.database.read() as session:
        lag = outbox_lag_seconds(session)
    detail = f"the oldest change that the bucket does not know is {lag:.0f} s old"
    if lag > _LAG_WARN_SECONDS:
        advice = "what the bucket does not know is lost with the database: see that the worker runs, and its log"
        return [Finding("outbox", Level.FAIL if lag > _LAG_FAIL_SECONDS else Level.WARN, detail, advice)]
    return [Finding("outbox", Level.OK, detail if lag else "the bucket knows every change")]


def _scrub_and_settings(context: ServiceContext) -> list[Finding]:
    with context.database.read() as session:
        coverage = load_coverage(session, interval_seconds=context.settings.scrub_interval_seconds)
    found = []
    if coverage.open_findings:
        detail = f"{coverage.open_findings} stored objects are damaged or lost"
        advice = "GET /v1/integrity/findings names them and the checkpoints they harm; the next save heals chunks"
        found.append(Finding("integrity", Level.WARN, detail, advice))
    else:
        detail = f"nothing known is damaged; {coverage.ratio:.0%} of the bytes were compared lately"
        found.append(Finding("integrity", Level.OK, detail))
    return [*found, *examine_settings(context.settings, stored_bytes=coverage.stored_bytes)]
