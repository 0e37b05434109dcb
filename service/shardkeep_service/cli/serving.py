"""What `serve` does: the service in this process, embedded (with SQLite) or as one of several replicas.

An embedded service owns its data directory, migrates its database and leaves an admin token for clients on this
machine. A replica (with PostgreSQL) owns nothing: its database is migrated by `migrate`, its tokens are made by
`token create`, and any number of them may run.
"""

from __future__ import annotations

import contextlib
import gc
import socket
import sqlite3
from typing import Final

import structlog
import typer

from shardkeep_service.access import repository
from shardkeep_service.access.bootstrap import publish_admin_token
from shardkeep_service.blob_store.errors import BlobStoreError
from shardkeep_service.blob_store.stores import remove_leftovers
from shardkeep_service.capabilities import SERVICE_VERSION
from shardkeep_service.catalogue.owner import BucketRefused, claim_bucket
from shardkeep_service.cli.exits import refuse
from shardkeep_service.database.data_directory import DataDirectoryRefused, check_local, owned_directory
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.database.migrate import MigrationRefused, head_revision, prepare_schema
from shardkeep_service.main import create_app, create_context
from shardkeep_service.observability.logs import configure_logs
from shardkeep_service.server import listen, run, url_of
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings

log = structlog.get_logger("shardkeep.server")

_LEFT_BEHIND_SECONDS: Final = 86_400.0
"""Files that replicas are writing to a shared directory are younger; older ones were left by a crash."""


def run_service(settings: Settings) -> None:
    """Runs until SIGTERM; ends the command when the service cannot start."""
    configure_logs(settings.log_level, secrets=settings.secrets)
    try:
        with _owned_directory(settings):
            _serve(settings)
    except (DataDirectoryRefused, MigrationRefused, DatabaseFailed, BlobStoreError, BucketRefused) as error:
        refuse(str(error))


def _serve(settings: Settings) -> None:
    context = create_context(settings)
    revision = prepare_schema(context.database, migrate=settings.migrates_at_start)
    catalogue = claim_bucket(context)
    _clean(context)
    app = create_app(settings, context=context)
    listener = _listen(settings)
    url = url_of(listener)
    if settings.is_embedded:
        publish_admin_token(context.database, data_dir=settings.data_dir, url=url)
    log.info(
        "starting", url=url, version=SERVICE_VERSION, revision=revision, catalogue=catalogue, **_database_facts(context)
    )
    _warn(context, revision)
    typer.echo(f"shardkeep-service: listening on {url}", err=True)
    _spare_what_is_loaded()
    run(app, listener)
    log.info("stopped")


def _spare_what_is_loaded() -> None:
    """Modules and routes live as long as the process: collecting garbage looks at them no more, which held up every
    request for as long as it took.
    """
    gc.collect()
    gc.freeze()


def _owned_directory(settings: Settings) -> contextlib.AbstractContextManager[None]:
    """The lock of an embedded service's directory; replicas may share theirs, or have none."""
    if not settings.is_embedded:
        return contextlib.nullcontext()
    check_local(settings.data_dir)
    return owned_directory(settings.data_dir)


def _listen(settings: Settings) -> socket.socket:
    try:
        return listen(settings.host, settings.port)
    except OSError as error:
        refuse(f"cannot listen on {settings.host} port {settings.port}: {error.strerror}")


def _clean(context: ServiceContext) -> None:
    older_than_seconds = 0.0 if context.settings.is_embedded else _LEFT_BEHIND_SECONDS
    removed = remove_leftovers(context.settings, older_than_seconds=older_than_seconds)
    if removed:
        log.info("incoming_removed", files=removed)


def _warn(context: ServiceContext, revision: str) -> None:
    """Says what an operator should know and may have meant."""
    if revision != head_revision():
        log.warning("schema_is_newer", revision=revision, own=head_revision(), next="upgrade this replica soon")
    with context.database.read() as session:
        if not repository.tokens(session):
            log.warning("no_tokens", next="make one with `shardkeep-service token create --scope admin`")


def _database_facts(context: ServiceContext) -> dict[str, str]:
    if not context.database.is_sqlite:
        return {"database": "postgresql"}
    return {"database": "sqlite", "sqlite_version": sqlite3.sqlite_version, "journal": context.database.journal}
