"""Request bodies of bulk bytes: read whole into one buffer, within a budget and never standing still for long."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from fastapi import Request
from starlette.requests import ClientDisconnect

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.chunks.body_budget import BodyBudget
from shardkeep_service.chunks.body_buffers import SMALL_BYTES, BodyBuffers
from shardkeep_service.errors import Refusal
from shardkeep_service.http_protocol import RECEIVE_INTO
from shardkeep_service.service_context import context_of


class BodyIntake:
    """What the bodies of one application share: the budget and the buffers."""

    def __init__(self, *, budget_bytes: int, wait_seconds: float) -> None:
        self.budget = BodyBudget(budget_bytes, wait_seconds=wait_seconds)
        self.buffers = BodyBuffers(idle_limit_bytes=budget_bytes // 2)


@contextlib.asynccontextmanager
async def received_body(request: Request, *, limit_bytes: int) -> AsyncIterator[memoryview]:
    """The whole body. It is valid, and its share of the budget held, until the block ends.

    Refuses `length_required`, `body_too_large`, `busy`, `idle_timeout` and `body_length_mismatch`; raises
    ClientDisconnect when the client went away.
    """
    size_bytes = declared_length(request, limit_bytes=limit_bytes)
    intake: BodyIntake = request.app.state.body_intake
    async with intake.budget.share(size_bytes):
        with _buffer(intake.buffers, size_bytes) as out:
            await _fill(request, out, idle_timeout_seconds=context_of(request).settings.idle_timeout_seconds)
            yield out


async def read_body(request: Request, *, limit_bytes: int) -> memoryview:
    """Like `received_body`, for bodies that outlive the reading: a copy, which no budget counts."""
    async with received_body(request, limit_bytes=limit_bytes) as body:
        return memoryview(bytes(body))


def declared_length(request: Request, *, limit_bytes: int) -> int:
    """The Content-Length; refuses one that is absent, malformed or above the limit."""
    text = request.headers.get("content-length", "")
    if not (text.isascii() and text.isdigit()) or "transfer-encoding" in request.headers:
        raise Refusal(ErrorCode.LENGTH_REQUIRED, "send this body with a Content-Length and no Transfer-Encoding")
    if int(text) > limit_bytes:
        raise Refusal(ErrorCode.BODY_TOO_LARGE, f"the body has {text} bytes and at most {limit_bytes} are taken")
    return int(text)


@contextlib.contextmanager
def _buffer(buffers: BodyBuffers, size_bytes: int) -> Iterator[memoryview]:
    if size_bytes < SMALL_BYTES:
        yield memoryview(bytearray(size_bytes))
        return
    buffer = buffers.take(size_bytes)
    body = memoryview(buffer)[:size_bytes]
    try:
        yield body
    except asyncio.CancelledError:
        raise  # a thread may still be reading the buffer: it must not be lent again
    except BaseException:
        _end(body)
        buffers.give_back(buffer)
        raise
    _end(body)
    buffers.give_back(buffer)


def _end(body: memoryview) -> None:
    """Lets go of the memory, whoever still refers to the body: requests and errors of an S3 client are in reference
    cycles, and a body in one would stay mapped, past the budget, until the collector comes by.
    """
    with contextlib.suppress(BufferError):  # a view of it is in use: it goes with that one
        body.release()


async def _fill(request: Request, out: memoryview, *, idle_timeout_seconds: float) -> None:
    receive_into = request.scope.get("extensions", {}).get(RECEIVE_INTO)
    try:
        if receive_into is not None:
            filled = await receive_into(out, idle_timeout_seconds=idle_timeout_seconds)
            if filled < len(out):
                raise ClientDisconnect
            return
        filled = await _collect(request, out, idle_timeout_seconds)
    except TimeoutError:
        detail = f"no byte of the body arrived for {idle_timeout_seconds:g} s; send it again"
        refusal = Refusal(ErrorCode.IDLE_TIMEOUT, detail)
        refusal.headers["connection"] = "close"
        raise refusal from None
    if filled != len(out):
        raise _mismatch(f"{filled} bytes instead of the {len(out)} declared")


async def _collect(request: Request, out: memoryview, idle_timeout_seconds: float) -> int:
    """The ordinary way, piece by piece; gives the bytes received."""
    filled, more = 0, True
    while more:
        async with asyncio.timeout(idle_timeout_seconds):
            message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece = message.get("body", b"")
        if filled + len(piece) > len(out):
            raise _mismatch(f"more than the {len(out)} bytes declared")
        out[filled : filled + len(piece)] = piece
        filled += len(piece)
        more = message.get("more_body", False)
    return filled


def _mismatch(what: str) -> Refusal:
    return Refusal(ErrorCode.BODY_LENGTH_MISMATCH, f"the body has {what}; nothing was stored, send it again")
