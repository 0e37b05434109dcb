"""Negotiation: which of the offered chunks are present, and where to send the others.

All ranks offer at about the same time: what arrives together is claimed in one transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sqlalchemy.orm import Session

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import ChunkAnswer, ChunkOffer, NegotiateAnswer, NegotiateChunks, Target
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.quotas import Allowances
from shardkeep_service.blob_store.presigner import Presigner
from shardkeep_service.checkpoints.sessions import OfferedBytes, renew_and_count
from shardkeep_service.checkpoints.write_batch import WriteBatch
from shardkeep_service.chunks import pending, repository
from shardkeep_service.chunks.direct import put_target, upload_presigner
from shardkeep_service.chunks.pending import Reserved
from shardkeep_service.chunks.places import UploadPlace, not_open, upload_place
from shardkeep_service.errors import Refusal
from shardkeep_service.moments import micros
from shardkeep_service.service_context import ServiceContext

Present: TypeAlias = Mapping[str, repository.PresentChunk]
_TOGETHER_LIMIT: Final = 64
"""Requests in one transaction: of 1,000 chunks each they hold the database for a second."""


@dataclass(frozen=True, slots=True)
class Offering:
    """One rank's offers for a checkpoint. `direct`: those not present may go to the object store itself."""

    principal: Principal
    checkpoint_id: str
    request: NegotiateChunks
    direct: bool = False


@dataclass(frozen=True, slots=True)
class _Claimed:
    """What the transaction gave for all offers of a checkpoint, by digest."""

    present: Present
    reserved: Mapping[str, Reserved]
    uncounted: set[int]
    """Ranks whose sessions somebody held, so that what they offered is not counted yet."""


@dataclass(slots=True)
class _Wanted:
    """All that is offered for one checkpoint in one transaction."""

    offerings: list[Offering] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    direct: dict[str, ChunkOffer] = field(default_factory=dict)

    def add(self, offering: Offering) -> None:
        offers = offering.request.chunks
        self.offerings.append(offering)
        self.sizes.update((offer.digest, offer.size) for offer in offers)
        if offering.direct:
            self.direct.update((offer.digest, offer) for offer in offers)

    def by_rank(self, present: Present) -> dict[int, OfferedBytes]:
        """What each rank offers."""
        found: defaultdict[int, OfferedBytes] = defaultdict(OfferedBytes)
        for offering in self.offerings:
            found[offering.request.rank] += _offered_bytes(offering, present)
        return found


class Negotiator:
    """Answers offers. Thread-safe; one per application."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._claims: WriteBatch[Offering, _Claimed] = WriteBatch(context.database, self._claim, limit=_TOGETHER_LIMIT)

    def negotiate(self, principal: Principal, checkpoint_id: str, request: NegotiateChunks) -> NegotiateAnswer:
        """One answer per offer, in order; what is `present` is claimed, what goes directly has a pending row.

        Renews the rank's session, and adds to it how many bytes it offered and how many of them were present. Offering
        a chunk again, because the answer was lost, to heal it or to stream what could not go directly, counts it again,
        as present if it has come meanwhile: progress to look at, and nothing that a commit depends on.
        """
        check_offers(request.chunks, limit_bytes=self._context.settings.max_chunk_bytes)
        presigner = upload_presigner(self._context) if request.direct else None
        offering = Offering(principal, checkpoint_id, request, direct=presigner is not None)
        claimed = self._claims.submit(offering)
        if request.rank in claimed.uncounted:
            self._count(offering, claimed.present)
        present = _visible(principal, claimed.present)
        _check_present(request.chunks, present)
        answers = [
            ChunkAnswer(digest=offer.digest, present=True)
            if offer.digest in present
            else ChunkAnswer(
                digest=offer.digest,
                present=False,
                target=self._direct(presigner, claimed.reserved.get(offer.digest), offer)
                or _streamed(checkpoint_id, request.rank, offer),
            )
            for offer in request.chunks
        ]
        negotiated = self._context.metrics.negotiated_chunks
        negotiated.labels("present").inc(sum(answer.present for answer in answers))
        negotiated.labels("upload").inc(sum(not answer.present for answer in answers))
        return NegotiateAnswer(chunks=answers)

    def _direct(self, presigner: Presigner | None, reserved: Reserved | None, offer: ChunkOffer) -> Target | None:
        """Where the chunk goes directly, if it does; not when another rank calls other bytes by its name."""
        if presigner is None or reserved is None or not reserved.fits(offer):
            return None
        return put_target(self._context, presigner, reserved)

    def _count(self, offering: Offering, present: Present) -> None:
        """Counts, in a transaction of its own, what was not while somebody held the rank's session."""
        offered = {offering.request.rank: _offered_bytes(offering, present)}
        with self._context.database.write() as session:
            until = self._lease_until(self._context.database.now(session))
            renew_and_count(session, offering.checkpoint_id, offered, lease_until=until, waits=True)

    def _lease_until(self, now: int) -> int:
        return now + micros(self._context.settings.lease_seconds)

    def _claim(self, session: Session, offerings: Sequence[Offering]) -> list[_Claimed | Refusal]:
        now = self._context.database.now(session)
        places = _places_of(session, offerings)
        wanted: defaultdict[UploadPlace, _Wanted] = defaultdict(_Wanted)
        for offering, place in zip(offerings, places, strict=True):
            if not isinstance(place, Refusal):
                wanted[place].add(offering)
        ordered = sorted(wanted, key=lambda place: place.checkpoint_id)
        makes_rows = any(one.direct for one in wanted.values())
        allowances = Allowances(session, {place.project_id for place in ordered}, lock=makes_rows)
        claimed: dict[UploadPlace, _Claimed | Refusal] = {}
        for place in ordered:
            try:
                claimed[place] = self._claim_for(session, place, wanted[place], allowances, now)
            except Refusal as refusal:
                claimed[place] = refusal
        allowances.settle()
        return [place if isinstance(place, Refusal) else claimed[place] for place in places]

    def _claim_for(
        self, session: Session, place: UploadPlace, wanted: _Wanted, allowances: Allowances, now: int
    ) -> _Claimed:
        settings = self._context.settings
        offered = repository.claim_present(
            session,
            project_id=place.project_id,
            run_id=place.run_id,
            digests=sorted(wanted.sizes),
            now=now,
            fresh_since=now - micros(settings.claim_repeat_seconds),
        )
        direct = {digest: offer for digest, offer in wanted.direct.items() if digest not in offered.present}
        new = wanted.sizes.keys() - offered.present.keys() - offered.known
        allowances.check(place.project_id, sum(wanted.sizes[digest] for digest in new))
        reserved = (
            pending.reserve(session, place, direct, known=offered.known, allowances=allowances, now=now)
            if direct
            else {}
        )
        by_rank = wanted.by_rank(offered.present)
        uncounted = renew_and_count(session, place.checkpoint_id, by_rank, lease_until=self._lease_until(now))
        return _Claimed(offered.present, reserved, uncounted)


def _offered_bytes(offering: Offering, present: Present) -> OfferedBytes:
    """Of one request, each chunk once; what the token may not know to be present has to be sent."""
    sizes = {offer.digest: offer.size for offer in offering.request.chunks}
    visible = _visible(offering.principal, present)
    return OfferedBytes(sum(sizes.values()), sum(size for digest, size in sizes.items() if digest in visible))


def _visible(principal: Principal, present: Present) -> Present:
    """What of it exists for this token: a job's does not learn what other runs of its project have."""
    if principal.run_id is None:
        return present
    return {digest: chunk for digest, chunk in present.items() if chunk.origin_run_id == principal.run_id}


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


def _streamed(checkpoint_id: str, rank: int, offer: ChunkOffer) -> Target:
    url = routes.path(routes.CHUNK, checkpoint=checkpoint_id, digest=offer.digest)
    headers = {routes.CRC64_HEADER: f"{offer.crc64:016x}"}
    return Target(method="PUT", url=f"{url}?rank={rank}", headers=headers)
