"""The one list of background tasks: what the worker runs, or the embedded service itself.

Each survives being killed at any point and being run by two processes at once: every step is conditional in the
database.
"""

from __future__ import annotations

from functools import partial

from shardkeep_service.catalogue.commit_records import write_commit_records
from shardkeep_service.checkpoints.control_plane import ControlPlane
from shardkeep_service.checkpoints.expiry import EXPIRY, expire_checkpoints
from shardkeep_service.chunks.damage import read_suspects
from shardkeep_service.garbage_collection.collector import collect
from shardkeep_service.integrity.scrub import scrub_due
from shardkeep_service.retention.applying import apply_policies
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.worker.loop import PeriodicTask

_FIRST_AFTER_SECONDS = 60
"""A service that has just started has better things to do first."""


def background_tasks(context: ServiceContext, control_plane: ControlPlane) -> list[PeriodicTask]:
    """Every periodic task of the service."""
    settings = context.settings
    often, first_after = settings.housekeeping_seconds, min(settings.housekeeping_seconds, _FIRST_AFTER_SECONDS)
    return [
        PeriodicTask(EXPIRY, often, lambda _: expire_checkpoints(context)),
        PeriodicTask("validations", often, lambda _: control_plane.validator.take_over()),
        PeriodicTask("commit-records", often, lambda _: write_commit_records(context)),
        PeriodicTask("retention", settings.retention_seconds, partial(apply_policies, context), first_after),
        PeriodicTask("collection", settings.collection_seconds, partial(collect, context), first_after),
        PeriodicTask("suspected-chunks", often, lambda _: read_suspects(context)),
        PeriodicTask("scrub", settings.scrub_seconds, partial(scrub_due, context), first_after),
    ]
