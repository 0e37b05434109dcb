"""Negotiation: which of the offered chunks are present, and where to send the others.

All ranks offer at about the same time: what arrives together is claimed in one transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from sqlalchemy.orm import Session

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import ChunkAnswer, ChunkOffer, NegotiateAnswer, NegotiateChunks, Target
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.sessions import renew
from shardkeep_service.checkpoints.write_batch import WriteBatch
from shardkeep_service.chunks import repository
from shardkeep_service.chunks.places import UploadPlace, not_open, upload_place
from shardkeep_service.errors import Refusal
from shardkeep_service.moments import micros
from shardkeep_service.service_context import ServiceContext

Present: TypeAlias = Mapping[str, repository.PresentChunk]
_TOGETHER_LIMIT: Final = 64
"""Requests in one transaction: of 1,000 chunks each they hold the database for a second."""


@dataclass(frozen=True, slots=True)
class Offering:
    """One rank's offers for a checkpoint."""

    principal: Principal
    checkpoint_id: str
    request: NegotiateChunks


class Negotiator:
    """Answers offers. Thread-safe; one per application."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._claims: WriteBatch[Offering, Present] = WriteBatch(context.database, self._claim, limit=_TOGETHER_LIMIT)

    def negotiate(self, offering: Offering) -> NegotiateAnswer:
        """One answer per offer, in order; what is `present` is claimed.

        Renews the rank's session.
        """
        offers = offering.request.chunks
        check_offers(offers, limit_bytes=self._context.settings.max_chunk_bytes)
        present = self._claims.submit(offering)
        _check_present(offers, present)
        answers = [_answer(offering.checkpoint_id, offering.request.rank, offer, present) for offer in offers]
        return NegotiateAnswer(chunks=answers)

    def _claim(self, session: Session, offerings: Sequence[Offering]) -> list[Present | Refusal]:
        now = self._context.database.now(session)
        places = _places_of(session, offerings)
        wanted: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        ranks: defaultdict[str, set[int]] = defaultdict(set)
        for offering, place in zip(offerings, places, strict=True):
            if not isinstance(place, Refusal):
                wanted[place.project_id, place.run_id].update(offer.digest for offer in offering.request.chunks)
                ranks[place.checkpoint_id].add(offering.request.rank)
        fresh_since = now - micros(self._context.settings.claim_repeat_seconds)
        present = {
            (project_id, run_id): repository.claim_present(
                session, project_id=project_id, run_id=run_id, digests=sorted(digests), now=now, fresh_since=fresh_since
            )
            for (project_id, run_id), digests in wanted.items()
        }
        lease_until = now + micros(self._context.settings.lease_seconds)
        for checkpoint_id, renewed in ranks.items():
            renew(session, checkpoint_id, renewed, lease_until=lease_until)
        return [place if isinstance(place, Refusal) else present[place.project_id, place.run_id] for place in places]


def _places_of(session: Session, offerings: Sequence[Offering]) -> list[UploadPlace | Refusal]:
    """Where each offering's chunks belong, or why it is refused; one look for all ranks of a checkpoint."""
    looks: dict[tuple[Principal, str], UploadPlace | Refusal] = {}
    places: list[UploadPlace | Refusal] = []
    for offering in offerings:
        key = (offering.principal, offering.checkpoint_id)
        if key not in looks:
            looks[key] = _open_place(session, *key)
        place = looks[key]
        places.append(place if isinstance(place, Refusal) else _place_of_rank(place, offering))
    return places


def _open_place(session: Session, principal: Principal, checkpoint_id: str) -> UploadPlace | Refusal:
    try:
        place = upload_place(session, principal, checkpoint_id)
    except Refusal as refusal:
        return refusal
    return place if place.takes_chunks else not_open(place)


def _place_of_rank(place: UploadPlace, offering: Offering) -> UploadPlace | Refusal:
    if offering.request.rank >= place.world_size:
        return Refusal(
            ErrorCode.RANK_OUT_OF_RANGE,
            f"rank {offering.request.rank} is outside the world of checkpoint {offering.checkpoint_id}, whose ranks"
            f" count from 0 to {place.world_size - 1}",
        )
    return place


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
        first = seen.setdefault(offer.digest, offer)
        if first is not offer and first != offer:
            detail = f"chunk {offer.digest} is offered twice with different sizes or checksums"
            raise Refusal(ErrorCode.MALFORMED_REQUEST, detail, chunks=[offer.digest])


def _check_present(offers: Sequence[ChunkOffer], present: Present) -> None:
    for offer in offers:
        stored = present.get(offer.digest)
        if stored is not None and (stored.size_bytes, stored.crc64) != (offer.size, f"{offer.crc64:016x}"):
            raise Refusal(
                ErrorCode.MALFORMED_REQUEST,
                f"chunk {offer.digest} is stored with {stored.size_bytes} bytes and checksum {stored.crc64}, and"
                f" offered with {offer.size} and {offer.crc64:016x}: the offer is wrong",
                chunks=[offer.digest],
            )


def _answer(checkpoint_id: str, rank: int, offer: ChunkOffer, present: Present) -> ChunkAnswer:
    if offer.digest in present:
        return ChunkAnswer(digest=offer.digest, present=True)
    url = routes.path(routes.CHUNK, checkpoint=checkpoint_id, digest=offer.digest)
    headers = {routes.CRC64_HEADER: f"{offer.crc64:016x}"}
    return ChunkAnswer(
        digest=offer.digest, present=False, target=Target(method="PUT", url=f"{url}?rank={rank}", headers=headers)
    )
