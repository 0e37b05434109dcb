"""`worker`: the background work of a service whose database is PostgreSQL, until SIGTERM."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Final

import structlog

from shardkeep_service.blob_store.errors import BlobStoreError
from shardkeep_service.capabilities import SERVICE_VERSION
from shardkeep_service.catalogue.owner import BucketRefused, claim_bucket
from shardkeep_service.checkpoints.control_plane import ControlPlane
from shardkeep_service.cli.exits import refuse
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.database.migrate import MigrationRefused, prepare_schema
from shardkeep_service.main import create_context
from shardkeep_service.observability.logs import configure_logs
from shardkeep_service.observability.metrics_server import MetricsServer
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from shardkeep_service.worker.loop import Leases, WorkerLoop
from shardkeep_service.worker.tasks import background_tasks

log = structlog.get_logger("shardkeep.worker")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run_worker(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT, whose tasks then have `shutdown_seconds` to end their step."""
    configure_logs(settings.log_level, secrets=settings.secrets)
    if settings.is_embedded:
        refuse(
            "the database is SQLite, whose service runs the background work itself; a worker goes with PostgreSQL:"
            " set SHARDKEEP_SERVICE_DATABASE_URL"
        )
    try:
        _work(create_context(settings, application="worker"))
    except (MigrationRefused, DatabaseFailed, BlobStoreError, BucketRefused) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"cannot serve metrics on {settings.host} port {settings.metrics_port}: {error.strerror}")


def _work(context: ServiceContext) -> None:
    settings = context.settings
    revision = prepare_schema(context.database, migrate=settings.migrates_at_start)
    claim_bucket(context)
    stopping = threading.Event()
    _stop_on_signals(stopping)
    control_plane = ControlPlane(context)
    leases = Leases(context.database, settings.worker_lease_seconds, settings.housekeeping_seconds)
    loop = WorkerLoop(background_tasks(context, control_plane), leases=leases, metrics=context.metrics)
    metrics = None
    if settings.metrics_port is not None:
        metrics = MetricsServer(context, host=settings.host, port=settings.metrics_port)
    log.info("worker_starting", version=SERVICE_VERSION, revision=revision, metrics_port=settings.metrics_port)
    loop.start()
    stopping.wait()
    log.info("worker_stopping", at_most_seconds=settings.shutdown_seconds)
    loop.stop(timeout_seconds=settings.shutdown_seconds)
    if metrics is not None:
        metrics.close()
    control_plane.close()
    context.pools.close()
    context.database.close()
    log.info("worker_stopped")


def _stop_on_signals(stopping: threading.Event) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    for number in _SIGNALS:
        signal.signal(number, stop)
