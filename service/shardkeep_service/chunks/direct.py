"""Whether bulk bytes bypass the service, and the signed requests by which they do."""

from __future__ import annotations

import structlog

from shardkeep.protocol.messages import Target
from shardkeep_service.blob_store.errors import BlobStoreError
from shardkeep_service.blob_store.presigner import Presigner, SignedRequest
from shardkeep_service.chunks.pending import Reserved
from shardkeep_service.service_context import ServiceContext

log = structlog.get_logger("shardkeep.direct")


def upload_presigner(context: ServiceContext) -> Presigner | None:
    """The presigner for uploads; None where they are streamed.

    `auto` uploads directly only where the store was seen to refuse a presigned body with another checksum or length:
    then an object under the key is the chunk that was declared. The first call may ask the store; while that fails,
    uploads are streamed.
    """
    presigner, choice = context.presigner, context.settings.direct
    if presigner is None or choice == "never":
        return None
    return presigner if choice == "always" or enforces_checksums(context) else None


def read_presigner(context: ServiceContext) -> Presigner | None:
    """The presigner for reads; None where they are streamed. Readers verify what they get, whatever the store does."""
    return None if context.settings.direct == "never" else context.presigner


def enforces_checksums(context: ServiceContext) -> bool:
    """Whether a listing of what arrived is enough; False while the store cannot be asked."""
    try:
        return context.abilities.presigned_checksum_enforced
    except BlobStoreError as error:
        log.warning("store_not_probed", reason=str(error))
        return False


def put_target(context: ServiceContext, presigner: Presigner, reserved: Reserved) -> Target:
    """Where the client sends the chunk's bytes itself."""
    signed = presigner.put(
        reserved.object_key,
        size_bytes=reserved.size_bytes,
        crc64=int(reserved.crc64, 16),
        lifetime_seconds=context.settings.direct_lifetime_seconds,
    )
    return _target("PUT", signed)


def get_target(context: ServiceContext, presigner: Presigner, object_key: str) -> Target:
    """Where the client reads the chunk's bytes itself."""
    return _target("GET", presigner.get(object_key, lifetime_seconds=context.settings.direct_lifetime_seconds))


def _target(method: str, signed: SignedRequest) -> Target:
    assert signed.method == method
    return Target(
        method="PUT" if method == "PUT" else "GET",
        url=signed.url,
        headers=signed.headers,
        expires_at=signed.expires_at,
    )
