"""Chunks: what a rank offers, where bytes go and come from, and damage."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from shardkeep.protocol.identifiers import (
    Digest,
)
from shardkeep.protocol.messages.bodies import Answer, Request
from shardkeep.protocol.messages.scalars import Rank
from shardkeep.protocol.versions import NEGOTIATE_LIMIT


class ChunkOffer(Request):
    """One chunk a rank wants stored."""

    digest: Digest
    size: Annotated[int, Field(ge=1, le=2**33)]
    crc64: Annotated[int, Field(ge=0, lt=2**64)]


class NegotiateChunks(Request):
    """POST /v1/checkpoints/{checkpoint}/chunks/negotiate.

    `direct` false: only targets on the service, since this client cannot reach the object store.
    """

    rank: Rank
    chunks: list[ChunkOffer] = Field(min_length=1, max_length=NEGOTIATE_LIMIT)
    direct: bool = True


class Target(Answer):
    """Where to send or fetch bytes.

    A relative `url` is on the service and takes the token. Others are signed URLs of the object store: they take no
    token, exactly these headers, and are secrets until `expires_at`.
    """

    method: Literal["PUT", "GET"]
    url: str = Field(repr=False)
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    expires_at: datetime | None = None


class ChunkAnswer(Answer):
    """`present`, or the target to upload to."""

    digest: Digest
    present: bool
    target: Target | None = None


class NegotiateAnswer(Answer):
    """One answer per offered chunk, in the same order."""

    chunks: list[ChunkAnswer]


class ReadTargets(Answer):
    """POST /v1/checkpoints/{checkpoint}/chunks/targets: where to fetch chunks, in the order asked."""

    targets: list[Target]


class AskReadTargets(Request):
    """The chunks a reader wants targets for; `direct` as in `NegotiateChunks`."""

    digests: list[Digest] = Field(min_length=1, max_length=NEGOTIATE_LIMIT)
    direct: bool = True


class ReportDamage(Request):
    """POST /v1/checkpoints/{checkpoint}/damage: a reader found bytes that do not match; the service re-reads them."""

    digests: list[Digest] = Field(min_length=1, max_length=NEGOTIATE_LIMIT)


class DamageAnswer(Answer):
    """What the service found of the reported chunks: really damaged, whole after all, or still to be read."""

    damaged: list[Digest]
    whole: list[Digest]
    pending: list[Digest]
