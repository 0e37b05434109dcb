"""`gc`: one pass of collection now, or (`--dry-run`) what it would do."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from shardkeep_service.blob_store.errors import BlobStoreError
from shardkeep_service.cli.exits import ExitCode, refuse
from shardkeep_service.cli.options import DataOption, settings_with
from shardkeep_service.database.data_directory import DataDirectoryRefused, owned_directory
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.database.migrate import MigrationRefused, prepare_schema
from shardkeep_service.garbage_collection.bucket_check import CollectionStopped, check_bucket
from shardkeep_service.garbage_collection.collector import note_stopped_because, steps
from shardkeep_service.garbage_collection.progress import collection_state
from shardkeep_service.garbage_collection.survey import survey
from shardkeep_service.main import create_context
from shardkeep_service.observability.logs import configure_logs
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from shardkeep_service.worker.lease import WorkerLease, new_owner
from shardkeep_service.worker.loop import Turn, TurnOver

COLLECTION_TASK: Final = "collection"
_TOLD_EVERY_SECONDS: Final = 5.0


def gc(
    data: DataOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and touch nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Purge what can be restored no more and remove what nobody needs: one pass, or the rest of one, now.

    The service (with PostgreSQL: the worker) does this by itself. With SQLite it must not run meanwhile. Exit code 3
    when collection is stopped, because the bucket is newer than the database or another catalogue's.
    """
    configure_logs("WARNING")
    settings = settings_with(data_dir=data)
    try:
        with _opened(settings) as context:
            _survey(context, as_json=as_json) if dry_run else _collect(context, as_json=as_json)
    except CollectionStopped as stopped:
        typer.echo(f"shardkeep-service: collection is stopped: {stopped}", err=True)
        raise typer.Exit(ExitCode.FOUND) from stopped
    except TurnOver as over:
        refuse(f"{over}; its pass goes on with what this one left")
    except (DataDirectoryRefused, MigrationRefused, DatabaseFailed, BlobStoreError) as error:
        refuse(str(error))


@contextlib.contextmanager
def _opened(settings: Settings) -> Iterator[ServiceContext]:
    owned = owned_directory(settings.data_dir) if settings.is_embedded else contextlib.nullcontext()
    with owned:
        context = create_context(settings, application="gc")
        try:
            prepare_schema(context.database, migrate=settings.migrates_at_start)
            yield context
        finally:
            context.pools.close()
            context.database.close()


def _survey(context: ServiceContext, *, as_json: bool) -> None:
    check_bucket(context)
    found = asdict(survey(context))
    _answer({"dry_run": True, **found}, as_json=as_json)


def _collect(context: ServiceContext, *, as_json: bool) -> None:
    lease = WorkerLease(context.database, COLLECTION_TASK, new_owner(), context.settings.worker_lease_seconds)
    if not lease.take(also_early=True):
        refuse("a worker is collecting at this moment; look at its log, or try again when it is through")
    try:
        _run(context, Turn(lease=lease), told=not as_json)
    except CollectionStopped as stopped:
        note_stopped_because(context, str(stopped))
        raise
    finally:
        lease.end(due_after_seconds=0)
    with context.database.read() as session:
        state = collection_state(session)
    _answer({"dry_run": False, **({} if state is None else state.tally)}, as_json=as_json)


def _run(context: ServiceContext, turn: Turn, *, told: bool) -> None:
    handled, told_at = 0, time.monotonic()
    for objects in steps(context):
        turn.check()
        turn.wait(objects / context.settings.collection_objects_per_second)
        handled += objects
        if told and time.monotonic() - told_at > _TOLD_EVERY_SECONDS:
            typer.echo(f"{handled} objects and rows handled", err=True)
            told_at = time.monotonic()


def _answer(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(document))
        return
    for name, value in document.items():
        if name == "dry_run":
            continue
        words = name.replace("_", " ")
        shown = f"{value['count']} ({value['size_bytes']} bytes)" if isinstance(value, dict) else value
        typer.echo(f"{words}: {shown}")
