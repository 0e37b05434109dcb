"""Before anything is removed: is this bucket ours, and is the database as new as it?

A database restored from an old backup does not know what was saved since, and would take it for garbage. Its bucket
shows it: there are records of commits that the database does not have.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import select

from shardkeep_service.catalogue.commit_records import unknown_commit_records
from shardkeep_service.catalogue.owner import BucketRefused, claim_bucket
from shardkeep_service.catalogue.record_keys import PROJECTS, parse_record_key
from shardkeep_service.catalogue.state import rebuild_unfinished
from shardkeep_service.projects.models import Project
from shardkeep_service.service_context import ServiceContext

_NAMED: Final = 5


class CollectionStopped(Exception):
    """Nothing may be collected until an operator acts; the message says what to do."""


def check_bucket(context: ServiceContext) -> None:
    """Raises CollectionStopped unless the bucket is this catalogue's and holds no commit that it does not know.

    One listing of the commit records of every project.
    """
    with context.database.read() as session:
        if rebuild_unfinished(session):
            raise CollectionStopped("a rebuild of the catalogue has not ended: run `shardkeep-service rebuild` again")
        known = set(session.scalars(select(Project.id)))
    try:
        claim_bucket(context)
    except BucketRefused as refused:
        raise CollectionStopped(str(refused)) from refused
    _check_projects(context, known)
    for project_id in sorted(known):
        unknown = unknown_commit_records(context, project_id)
        if unknown:
            raise CollectionStopped(_newer_bucket(f"{len(unknown)} commits of project {project_id}", unknown))


def _check_projects(context: ServiceContext, known: set[str]) -> None:
    """A project that only the bucket knows is none of ours to touch, and says that the rest may be newer too."""
    found = (parse_record_key(blob.key) for blob in context.blob_store.list(PROJECTS))
    unknown = sorted({record.subject_id for record in found if record is not None} - known)
    if unknown:
        raise CollectionStopped(_newer_bucket(f"{len(unknown)} projects", unknown))


def _newer_bucket(what: str, ids: list[str]) -> str:
    named = ", ".join(ids[:_NAMED]) + (" and more" if len(ids) > _NAMED else "")
    return (
        f"the bucket has records of {what} that the database does not know ({named}): the database is older than the"
        " bucket, restored from a backup say. Nothing is collected until `shardkeep-service rebuild --add` has brought"
        " them back"
    )
