"""The routes of the dashboard's files: those that exist, and the index page for every address of a page."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.errors import Refusal
from shardkeep_service.ui.answers import NOT_BUILT, file_answer, page_headers
from shardkeep_service.ui.files import HASHED_FOLDER, INDEX, DashboardFiles

router = APIRouter(include_in_schema=False)

_READING: Final = ["GET", "HEAD"]
"""Proxies and checkers of links ask with HEAD; the server sends the same answer without its body."""
_HOME: Final = f"{routes.UI}/"
_NO_FILE: Final = "there is no such file in the dashboard"
_STEPS: Final = frozenset({"", ".", ".."})


async def dashboard_files(request: Request) -> DashboardFiles:
    """FastAPI dependency: the files of this application."""
    files = request.app.state.dashboard_files
    assert isinstance(files, DashboardFiles)
    return files


Files = Annotated[DashboardFiles, Depends(dashboard_files)]


@router.api_route("/", methods=_READING)
async def home(request: Request) -> Response:
    """Sends browsers to the dashboard; to anything else there is nothing here."""
    if "text/html" not in request.headers.get("accept", ""):
        raise Refusal(ErrorCode.NO_SUCH_ROUTE, "the API is under /v1 (see GET /v1/openapi.json), the dashboard at /ui/")
    return _to_home()


@router.api_route(routes.UI, methods=_READING)
async def dashboard() -> Response:
    """Sends browsers to the folder, for the router of the pages is relative to it."""
    return _to_home()


@router.api_route(f"{routes.UI}/{{path:path}}", methods=_READING)
async def dashboard_file(request: Request, files: Files, path: str) -> Response:
    """A file; the index page where the address is that of a page."""
    found = await run_in_threadpool(files.load)
    if not found:
        return Response(NOT_BUILT, status_code=503, headers={**page_headers(), "cache-control": "no-store"})
    name = path or INDEX
    file = found.get(name)
    if file is None:
        if not _may_be_page(path):
            raise Refusal(ErrorCode.NO_SUCH_ROUTE, _NO_FILE)
        name, file = INDEX, found[INDEX]
    return file_answer(file, request.headers, lasting=name.startswith(f"{HASHED_FOLDER}/"))


def _may_be_page(path: str) -> bool:
    """Addresses of pages hold names of runs, which may hold dots; files that are missing are at the top or hashed."""
    first, *others = path.split("/")
    if first == HASHED_FOLDER or not (path.isprintable() and "\\" not in path):
        return False
    if any(step in _STEPS for step in path.removesuffix("/").split("/")):
        return False
    return bool(others) or "." not in first


def _to_home() -> Response:
    return RedirectResponse(_HOME, status_code=307, headers={**page_headers(), "cache-control": "no-store"})
