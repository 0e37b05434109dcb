"""Health: whether the process lives, and whether it should be sent requests."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.blob_store.errors import BlobStoreError
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.database.migrate import MigrationRefused, check_schema
from shardkeep_service.errors import Refusal
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter()
_REMEMBER_SECONDS: Final = 5.0
_OK: Final = "ok"


class Readiness:
    """The checks behind /readyz, remembered for a few seconds: a supervisor asks often and the checks write."""

    def __init__(self, context: ServiceContext, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._checking = threading.Lock()
        self._found: dict[str, str] = {}
        self._found_at = float("-inf")

    def checks(self) -> Mapping[str, str]:
        """Each check by name with `ok` or what is wrong."""
        if self._clock() - self._found_at <= _REMEMBER_SECONDS:
            return self._found
        # One caller checks and the others are told what was found last: a store that hangs holds one thread.
        if self._checking.acquire(blocking=not self._found):
            try:
                self._found = {"database": self._check_database(), "blob_store": self._check_blob_store()}
                self._found_at = self._clock()
            finally:
                self._checking.release()
        return self._found

    def _check_database(self) -> str:
        try:
            check_schema(self._context.database)
        except DatabaseFailed as error:
            return f"does not answer: {error}"
        except MigrationRefused as error:
            return str(error)
        return _OK

    def _check_blob_store(self) -> str:
        key = f"readiness/{secrets.token_hex(8)}"
        try:
            self._context.blob_store.put(key, memoryview(b"ready"))
            self._context.blob_store.delete([key])
        except BlobStoreError as error:
            return f"cannot be written: {error}"
        return _OK


@router.get(routes.LIVEZ)
@router.head(routes.LIVEZ, include_in_schema=False)
async def livez() -> JSONResponse:
    """Answers while the process lives; depends on nothing."""
    return JSONResponse({"status": _OK})


@router.get(routes.READYZ)
@router.head(routes.READYZ, include_in_schema=False)
async def readyz(
    request: Request, context: Annotated[ServiceContext, Depends(get_context)], verbose: str | None = None
) -> Response:
    """200 when requests may be sent here, else 503; `?verbose` names each check. Reasons go to the log."""
    readiness: Readiness = request.app.state.readiness
    found = {"draining": "is stopping"} if context.drain.begun else {"draining": _OK}
    if not context.drain.begun:
        found |= await run_in_threadpool(readiness.checks)
    failing = sorted(name for name, state in found.items() if state != _OK)
    if failing:
        code = ErrorCode.SHUTTING_DOWN if context.drain.begun else ErrorCode.NOT_READY
        raise Refusal(code, f"not ready: {', '.join(failing)}", retry_after_seconds=2.0, checks=_shown(found))
    return JSONResponse({"status": _OK} | ({} if verbose is None else {"checks": _shown(found)}))


def _shown(found: Mapping[str, str]) -> dict[str, str]:
    """Without a token a caller learns which check fails, not the paths and addresses in its reason."""
    return {name: _OK if state == _OK else "failing" for name, state in found.items()}
