"""What `serve` does: the service in this process, from the lock on its directory to its orderly end."""

from __future__ import annotations

import sqlite3

import structlog
import typer

from shardkeep_service.access.bootstrap import publish_admin_token
from shardkeep_service.blob_store.errors import BlobStoreError
from shardkeep_service.blob_store.file_system import FileSystemBlobStore
from shardkeep_service.capabilities import SERVICE_VERSION
from shardkeep_service.cli.exits import refuse
from shardkeep_service.database.data_directory import DataDirectoryRefused, check_local, owned_directory
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.database.migrate import MigrationRefused, upgrade
from shardkeep_service.main import create_app, create_context
from shardkeep_service.observability.logs import configure_logs
from shardkeep_service.server import listen, run, url_of
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings

log = structlog.get_logger("shardkeep.server")


def run_service(settings: Settings) -> None:
    """Runs until SIGTERM; ends the command when the service cannot start."""
    configure_logs()
    try:
        with owned_directory(settings.data_dir):
            check_local(settings.data_dir)
            _serve(settings)
    except (DataDirectoryRefused, MigrationRefused, DatabaseFailed, BlobStoreError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"cannot listen on {settings.host} port {settings.port}: {error.strerror}")


def _serve(settings: Settings) -> None:
    context = create_context(settings)
    revision = upgrade(context.database)
    _clean(context)
    app = create_app(settings, context=context)
    listener = listen(settings.host, settings.port)
    url = url_of(listener)
    publish_admin_token(context.database, data_dir=settings.data_dir, url=url)
    log.info("starting", url=url, version=SERVICE_VERSION, revision=revision, **_database_facts(context))
    typer.echo(f"shardkeep-service: listening on {url}", err=True)
    run(app, listener)
    log.info("stopped")


def _clean(context: ServiceContext) -> None:
    if isinstance(context.blob_store, FileSystemBlobStore):
        removed = context.blob_store.remove_incoming()
        if removed:
            log.info("incoming_removed", files=removed)


def _database_facts(context: ServiceContext) -> dict[str, str]:
    if not context.database.is_sqlite:
        return {"database": "postgresql"}
    return {"database": "sqlite", "sqlite_version": sqlite3.sqlite_version, "journal": context.database.journal}
