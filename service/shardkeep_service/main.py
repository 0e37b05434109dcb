"""The application: routes, middleware and what they share, put together once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.concurrency import run_in_threadpool

from shardkeep_service import capabilities, health
from shardkeep_service.access import endpoints as access
from shardkeep_service.access.default_deny import check_every_route_declares_a_scope
from shardkeep_service.access.dependency import Scope, requires
from shardkeep_service.access.gate import Gate
from shardkeep_service.blob_store.blob_store import BlobStore
from shardkeep_service.blob_store.file_system import FileSystemBlobStore
from shardkeep_service.body_limits import BodyLimitMiddleware
from shardkeep_service.capabilities import SERVICE_VERSION
from shardkeep_service.checkpoints import endpoints as checkpoints
from shardkeep_service.checkpoints.control_plane import ControlPlane
from shardkeep_service.chunks import endpoints as chunks
from shardkeep_service.chunks.bodies import BodyIntake
from shardkeep_service.chunks.damage import read_suspects
from shardkeep_service.chunks.ingest import ChunkIngest
from shardkeep_service.chunks.negotiation import Negotiator
from shardkeep_service.database.database import Database
from shardkeep_service.database.migrate import upgrade
from shardkeep_service.drain import DrainMiddleware
from shardkeep_service.error_responses import install_error_responses
from shardkeep_service.observability.faults import FaultMiddleware, parse_fault
from shardkeep_service.observability.requests import RequestMiddleware
from shardkeep_service.projects import endpoints as projects
from shardkeep_service.runs import endpoints as runs
from shardkeep_service.service_context import ServiceContext, ThreadPools
from shardkeep_service.settings import Settings
from shardkeep_service.worker.loop import PeriodicTask, WorkerLoop

OPENAPI: Final = "/v1/openapi.json"
_meta = APIRouter()


def create_context(settings: Settings, *, blob_store: BlobStore | None = None) -> ServiceContext:
    """Opens the database and the blob store of these settings; connects to nothing yet."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    return ServiceContext(
        database=Database(settings.resolved_database_url),
        blob_store=blob_store or FileSystemBlobStore(settings.data_dir / "blobs"),
        settings=settings,
        pools=ThreadPools(storage_threads=settings.storage_threads, hashing_threads=settings.hashing_threads),
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
    app.state.control_plane = ControlPlane(context)
    app.state.ingest = ChunkIngest(context)
    app.state.negotiator = Negotiator(context)
    app.state.body_intake = BodyIntake(
        budget_bytes=settings.upload_budget_bytes, wait_seconds=settings.upload_wait_seconds
    )
    for router in _routers():
        app.router.routes.extend(router.routes)
    check_every_route_declares_a_scope(app.routes)
    install_error_responses(app)
    _add_middleware(app, context)
    return app


def _routers() -> list[APIRouter]:
    nouns = (projects, runs, checkpoints, chunks)
    return [health.router, capabilities.router, access.router, *(noun.router for noun in nouns), _meta]


def _add_middleware(app: FastAPI, context: ServiceContext) -> None:
    """The last one added is the outermost."""
    settings = context.settings
    app.add_middleware(
        BodyLimitMiddleware, limit_bytes=settings.max_json_bytes, idle_timeout_seconds=settings.idle_timeout_seconds
    )
    app.add_middleware(DrainMiddleware, drain=context.drain)
    app.add_middleware(RequestMiddleware)
    if settings.fault is not None:
        app.add_middleware(FaultMiddleware, fault=parse_fault(settings.fault))


def _tasks(context: ServiceContext) -> list[PeriodicTask]:
    seconds = context.settings.housekeeping_seconds
    return [PeriodicTask("suspected_chunks", seconds, partial(read_suspects, context))]


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context: ServiceContext = app.state.context
    await run_in_threadpool(upgrade, context.database)
    app.state.readiness = health.Readiness(context)
    control_plane: ControlPlane = app.state.control_plane
    await run_in_threadpool(control_plane.start)
    worker = WorkerLoop([*_tasks(context), *control_plane.tasks()])
    worker.start()
    try:
        yield
    finally:
        await run_in_threadpool(worker.stop)
        await run_in_threadpool(control_plane.close)
        await run_in_threadpool(context.pools.close)
        context.database.close()


@_meta.get(OPENAPI, dependencies=[Depends(requires(Scope.ADMIN))], include_in_schema=False)
async def openapi(request: Request) -> dict[str, Any]:
    """The OpenAPI 3.1 document of this service."""
    document: dict[str, Any] = request.app.openapi()
    return document
