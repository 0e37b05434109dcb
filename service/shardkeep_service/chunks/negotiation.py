"""Negotiation: which of the offered chunks are present, and where to send the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import ChunkAnswer, ChunkOffer, NegotiateAnswer, NegotiateChunks, Target
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.sessions import renew
from shardkeep_service.chunks import repository
from shardkeep_service.chunks.places import not_open, upload_place
from shardkeep_service.errors import Refusal
from shardkeep_service.moments import micros
from shardkeep_service.service_context import ServiceContext


def negotiate(
    context: ServiceContext, principal: Principal, checkpoint_id: str, request: NegotiateChunks
) -> NegotiateAnswer:
    """One answer per offer, in order; what is `present` is claimed in the same statement. Renews the rank's session."""
    check_offers(request.chunks, limit_bytes=context.settings.max_chunk_bytes)
    with context.database.write() as session:
        place = upload_place(session, principal, checkpoint_id)
        if not place.takes_chunks:
            raise not_open(place)
        if request.rank >= place.world_size:
            raise Refusal(
                ErrorCode.RANK_OUT_OF_RANGE,
                f"rank {request.rank} is outside the world of {place.world_size} ranks of checkpoint {checkpoint_id}",
            )
        now = context.database.now(session)
        present = repository.claim_present(
            session,
            project_id=place.project_id,
            run_id=place.run_id,
            digests=sorted({offer.digest for offer in request.chunks}),
            now=now,
        )
        renew(session, checkpoint_id, [request.rank], lease_until=now + micros(context.settings.lease_seconds))
    _check_present(request.chunks, present)
    return NegotiateAnswer(chunks=[_answer(checkpoint_id, request.rank, offer, present) for offer in request.chunks])


def check_offers(offers: Sequence[ChunkOffer], *, limit_bytes: int) -> None:
    """Refuses chunks above the limit, and one digest offered as two different chunks."""
    large = [offer.digest for offer in offers if offer.size > limit_bytes]
    if large:
        detail = (
            f"{len(large)} chunks have more than the {limit_bytes} bytes taken, the first is {large[0]}; cut smaller"
        )
        raise Refusal(ErrorCode.BODY_TOO_LARGE, detail, chunks=large)
    seen: dict[str, ChunkOffer] = {}
    for offer in offers:
        if seen.setdefault(offer.digest, offer) != offer:
            detail = f"chunk {offer.digest} is offered twice with different sizes or checksums"
            raise Refusal(ErrorCode.MALFORMED_REQUEST, detail, chunks=[offer.digest])


def _check_present(offers: Sequence[ChunkOffer], present: Mapping[str, repository.PresentChunk]) -> None:
    for offer in offers:
        stored = present.get(offer.digest)
        if stored is not None and (stored.size_bytes, stored.crc64) != (offer.size, f"{offer.crc64:016x}"):
            raise Refusal(
                ErrorCode.MALFORMED_REQUEST,
                f"chunk {offer.digest} is stored with {stored.size_bytes} bytes and checksum {stored.crc64}, and"
                f" offered with {offer.size} and {offer.crc64:016x}: the offer is wrong",
                chunks=[offer.digest],
            )


def _answer(
    checkpoint_id: str, rank: int, offer: ChunkOffer, present: Mapping[str, repository.PresentChunk]
) -> ChunkAnswer:
    if offer.digest in present:
        return ChunkAnswer(digest=offer.digest, present=True)
    url = routes.path(routes.CHUNK, checkpoint=checkpoint_id, digest=offer.digest)
    headers = {routes.CRC64_HEADER: f"{offer.crc64:016x}"}
    return ChunkAnswer(
        digest=offer.digest, present=False, target=Target(method="PUT", url=f"{url}?rank={rank}", headers=headers)
    )
