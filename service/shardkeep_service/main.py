"""The application: routes, middleware and what they share, put together once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.concurrency import run_in_threadpool

from shardkeep_service import capabilities, health
from shardkeep_service.access import endpoints as access
from shardkeep_service.access import sign_in_endpoints as sign_ins
from shardkeep_service.access.browser_requests import browser_requests
from shardkeep_service.access.default_deny import check_every_route_declares_a_scope
from shardkeep_service.access.dependency import Scope, requires
from shardkeep_service.access.gate import WRITE_USES_SECONDS, Gate
from shardkeep_service.access.sign_in_limit import SignInLimit
from shardkeep_service.blob_store.blob_store import BlobStore
from shardkeep_service.blob_store.patient_probe import PatientProbe
from shardkeep_service.blob_store.stores import Stores, open_stores
from shardkeep_service.body_limits import BodyLimitMiddleware
from shardkeep_service.capabilities import SERVICE_VERSION
from shardkeep_service.checkpoints import endpoints as checkpoints
from shardkeep_service.checkpoints.control_plane import ControlPlane
from shardkeep_service.chunks import endpoints as chunks
from shardkeep_service.chunks.bodies import BodyIntake
from shardkeep_service.chunks.ingest import ChunkIngest
from shardkeep_service.chunks.negotiation import Negotiator
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.database.migrate import prepare_schema
from shardkeep_service.database.open_database import open_database
from shardkeep_service.drain import DrainMiddleware
from shardkeep_service.error_responses import install_error_responses
from shardkeep_service.integrity import endpoints as integrity
from shardkeep_service.observability import endpoints as observability
from shardkeep_service.observability.faults import FaultMiddleware, parse_fault
from shardkeep_service.observability.metrics import Metrics
from shardkeep_service.observability.requests import RequestMiddleware
from shardkeep_service.openapi_document import openapi_document
from shardkeep_service.overview import endpoints as overview
from shardkeep_service.overview.service import Overviews
from shardkeep_service.projects import endpoints as projects
from shardkeep_service.retention import endpoints as retention
from shardkeep_service.runs import endpoints as runs
from shardkeep_service.service_context import ServiceContext, ThreadPools
from shardkeep_service.settings import Settings
from shardkeep_service.system import endpoints as system
from shardkeep_service.ui import endpoints as ui
from shardkeep_service.ui.files import DashboardFiles
from shardkeep_service.worker.loop import PeriodicTask, WorkerLoop
from shardkeep_service.worker.tasks import background_tasks

OPENAPI: Final = "/v1/openapi.json"
_meta = APIRouter()


def create_context(
    settings: Settings, *, application: str = "serve", blob_store: BlobStore | None = None
) -> ServiceContext:
    """Opens the database and the blob store of these settings; connects to nothing yet.

    `application` is the name under which the database server shows this process.
    """
    if settings.is_embedded:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    metrics = Metrics()
    stores = Stores(blob_store) if blob_store is not None else open_stores(settings, metrics)
    return ServiceContext(
        database=open_database(settings, application=application),
        blob_store=stores.blob_store,
        settings=settings,
        pools=ThreadPools(storage_threads=settings.storage_threads, hashing_threads=settings.hashing_threads),
        metrics=metrics,
        presigner=stores.presigner,
        find_abilities=PatientProbe(stores.find_abilities),
    )


def create_app(settings: Settings, *, context: ServiceContext | None = None) -> FastAPI:
    """The application; UndeclaredScope when a route could be called without a token."""
    context = context or create_context(settings)
    app = FastAPI(
        title="Shardkeep",
        version=SERVICE_VERSION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.context = context
    app.state.gate = Gate(context.database)
    app.state.browser_requests = browser_requests(settings)
    app.state.sign_in_limit = SignInLimit()
    app.state.dashboard_files = DashboardFiles()
    app.state.control_plane = ControlPlane(context)
    app.state.overviews = Overviews(context)
    app.state.ingest = ChunkIngest(context)
    app.state.negotiator = Negotiator(context)
    app.state.body_intake = BodyIntake(
        budget_bytes=settings.upload_budget_bytes, wait_seconds=settings.upload_wait_seconds
    )
    _watch(app)
    for router in _routers(settings):
        app.router.routes.extend(router.routes)
    check_every_route_declares_a_scope(app.routes)
    install_error_responses(app)
    _add_middleware(app, context)
    return app


def _watch(app: FastAPI) -> None:
    """Gauges that are read from what they speak of whenever somebody asks."""
    context: ServiceContext = app.state.context
    intake: BodyIntake = app.state.body_intake
    context.metrics.upload_budget.set(context.settings.upload_budget_bytes)
    context.metrics.upload_budget_used.set_function(lambda: intake.budget.used_bytes)
    context.metrics.database_connections.set_function(lambda: context.database.connections_in_use)


def _routers(settings: Settings) -> list[APIRouter]:
    nouns = (projects, runs, checkpoints, chunks, retention, integrity, overview, system)
    plain = [health.router, observability.router, capabilities.router, access.router]
    if settings.ui_enabled:
        plain += [sign_ins.router, ui.router]
    return [*plain, *(noun.router for noun in nouns), _meta]


def _add_middleware(app: FastAPI, context: ServiceContext) -> None:
    """The last one added is the outermost."""
    settings = context.settings
    app.add_middleware(
        BodyLimitMiddleware, limit_bytes=settings.max_json_bytes, idle_timeout_seconds=settings.idle_timeout_seconds
    )
    app.add_middleware(DrainMiddleware, drain=context.drain)
    app.add_middleware(RequestMiddleware, metrics=context.metrics)
    if settings.fault is not None:
        app.add_middleware(FaultMiddleware, fault=parse_fault(settings.fault))


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context: ServiceContext = app.state.context
    await run_in_threadpool(prepare_schema, context.database, migrate=context.settings.migrates_at_start)
    app.state.readiness = health.Readiness(context)
    control_plane: ControlPlane = app.state.control_plane
    await run_in_threadpool(control_plane.start)
    tasks = background_tasks(context, control_plane) if context.database.is_sqlite else []
    gate: Gate = app.state.gate
    own = PeriodicTask("token_uses", WRITE_USES_SECONDS, lambda _turn: gate.write_uses())
    worker = WorkerLoop([own, *tasks], metrics=context.metrics)  # beside PostgreSQL `tasks` are the worker's
    worker.start()
    try:
        yield
    finally:
        await run_in_threadpool(worker.stop)
        with contextlib.suppress(DatabaseFailed):
            await run_in_threadpool(gate.write_uses)
        await run_in_threadpool(control_plane.close)
        await run_in_threadpool(context.pools.close)
        context.database.close()


@_meta.get(OPENAPI, dependencies=[Depends(requires(Scope.ADMIN))], include_in_schema=False)
async def openapi(request: Request) -> dict[str, Any]:
    """The OpenAPI 3.1 document of this service."""
    return openapi_document(request.app)
