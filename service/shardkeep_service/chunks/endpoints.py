"""The routes of chunks."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.identifiers import Digest
from shardkeep.protocol.messages import (
    AskReadTargets,
    ChunkAnswer,
    DamageAnswer,
    NegotiateAnswer,
    NegotiateChunks,
    Rank,
    ReadTargets,
    ReportDamage,
)
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.chunks.blob_response import BlobResponse
from shardkeep_service.chunks.bodies import declared_length, received_body
from shardkeep_service.chunks.damage import report_damage
from shardkeep_service.chunks.ingest import ChunkIngest
from shardkeep_service.chunks.negotiation import Negotiator
from shardkeep_service.chunks.ranges import choose_range
from shardkeep_service.chunks.reading import find_chunk, read_targets
from shardkeep_service.errors import Refusal
from shardkeep_service.observability.metrics import STREAMED
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter()
Context = Annotated[ServiceContext, Depends(get_context)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
Writer = Annotated[Principal, Depends(requires(Scope.WRITE))]
_CRC64: Final = re.compile(r"[0-9a-f]{16}")


@router.post(routes.NEGOTIATE, response_model=NegotiateAnswer)
def negotiate_chunks(checkpoint: str, body: NegotiateChunks, request: Request, principal: Writer) -> Response:
    """Which of the offered chunks are present, and where to send the others."""
    negotiator: Negotiator = request.app.state.negotiator
    answer = negotiator.negotiate(principal, checkpoint, body)
    return Response(answer.model_dump_json(), media_type="application/json")  # FastAPI would check 1,000 items again


@router.post(routes.READ_TARGETS)
def chunk_targets(checkpoint: str, body: AskReadTargets, context: Context, principal: Reader) -> ReadTargets:
    """Where to fetch chunks, in the order asked."""
    return read_targets(context, principal, checkpoint, body)


@router.post(routes.DAMAGE)
def damage(checkpoint: str, body: ReportDamage, context: Context, principal: Reader) -> DamageAnswer:
    """Reads the reported chunks again; what is really damaged is quarantined."""
    return report_damage(context, principal, checkpoint, body.digests)


@router.put(routes.CHUNK, status_code=201, responses={200: {"description": "it was present"}})
async def put_chunk(
    request: Request,
    response: Response,
    checkpoint: str,
    digest: Digest,
    context: Context,
    principal: Writer,
    rank: Rank | None = None,
    crc64: Annotated[str | None, Header(alias=routes.CRC64_HEADER)] = None,
) -> ChunkAnswer:
    """Stores one chunk: 201 when it is new, 200 when it was present. Nothing counts before its digest is verified."""
    if crc64 is None or _CRC64.fullmatch(crc64) is None:
        raise Refusal(ErrorCode.MALFORMED_REQUEST, f"send {routes.CRC64_HEADER} with 16 lower-case hexadecimal digits")
    limit_bytes = context.settings.max_chunk_bytes
    size_bytes = declared_length(request, limit_bytes=limit_bytes)
    ingest: ChunkIngest = request.app.state.ingest
    upload = await run_in_threadpool(
        ingest.admit, principal, checkpoint, digest=digest, crc64=crc64, rank=rank, size_bytes=size_bytes
    )
    loop, began = asyncio.get_running_loop(), time.perf_counter()
    async with received_body(request, limit_bytes=limit_bytes) as body:
        await loop.run_in_executor(context.pools.hashing, ingest.verify, upload, body)
        new = await loop.run_in_executor(context.pools.storage, ingest.store, upload, body)
    if new:
        context.metrics.upload_size.labels(STREAMED).observe(size_bytes)
        context.metrics.upload_seconds.labels(STREAMED).observe(time.perf_counter() - began)
    response.status_code = 201 if new else 200
    return ChunkAnswer(digest=digest, present=not new)


@router.get(routes.CHUNK, response_class=Response)
@router.head(routes.CHUNK, response_class=Response, include_in_schema=False)
def get_chunk(
    checkpoint: str,
    digest: Digest,
    context: Context,
    principal: Reader,
    range_header: Annotated[str | None, Header(alias="range")] = None,
    if_range: Annotated[str | None, Header()] = None,
) -> BlobResponse:
    """The stored bytes of a chunk, or one range of them. A reader checks itself that they are what the digest names."""
    chunk = find_chunk(context, principal, checkpoint, digest)
    etag = f'"{digest}"'
    sent = choose_range(range_header, if_range=if_range, etag=etag, size_bytes=chunk.size_bytes)
    headers = {
        "etag": etag,
        "accept-ranges": "bytes",
        "cache-control": "private, max-age=31536000, immutable",
        "x-content-type-options": "nosniff",
        routes.CRC64_HEADER: chunk.crc64,
    }
    return BlobResponse(context, chunk.object_key, sent, headers, media_type=routes.BINARY_CONTENT_TYPE)
