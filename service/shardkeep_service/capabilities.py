"""What this service speaks and allows."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Final

from fastapi import APIRouter, Depends

from shardkeep.format.codecs import Codec
from shardkeep.format.versions import FORMAT_VERSION
from shardkeep.protocol import routes
from shardkeep.protocol.messages import Capabilities
from shardkeep.protocol.versions import LIST_LIMIT, NEGOTIATE_LIMIT, PROTOCOL_VERSION, WAIT_SECONDS_LIMIT
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.chunks.direct import upload_presigner
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter()
SERVICE_VERSION: Final = version("shardkeep")


@router.get(routes.CAPABILITIES)
def capabilities(
    context: Annotated[ServiceContext, Depends(get_context)],
    _principal: Annotated[Principal, Depends(requires(Scope.READ))],
) -> Capabilities:
    """Versions, codecs and limits."""
    settings = context.settings
    return Capabilities(
        service_version=SERVICE_VERSION,
        protocol_versions=[PROTOCOL_VERSION],
        manifest_versions=list(range(1, FORMAT_VERSION + 1)),
        codecs=[codec.name.lower() for codec in Codec],
        max_chunk_bytes=settings.max_chunk_bytes,
        max_manifest_bytes=settings.max_manifest_bytes,
        negotiate_limit=NEGOTIATE_LIMIT,
        list_limit=LIST_LIMIT,
        lease_seconds=settings.lease_seconds,
        beat_seconds=settings.beat_seconds,
        wait_seconds_limit=WAIT_SECONDS_LIMIT,
        uploads=["streamed"] if upload_presigner(context) is None else ["streamed", "direct"],
    )
