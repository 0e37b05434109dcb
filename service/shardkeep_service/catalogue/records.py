"""Records: what the bucket keeps of the catalogue, as JSON objects that vouch for themselves.

A record holds the whole of what is known of its subject, never a change, so the one of the highest version says it all.
Times are microseconds since 1970 UTC, digests hexadecimal BLAKE3. Members are only ever added, with a default.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from blake3 import blake3

from shardkeep.errors import FormatError

RECORD_VERSION: Final = 2
AnyRecord = TypeVar("AnyRecord", bound=msgspec.Struct)
_BEGINNING: Final = b'{"blake3":'


class ProjectRecord(msgspec.Struct, frozen=True):
    """A project. A deleted one has a `name` that nobody can give, and its own as `deleted_name`."""

    record_version: int
    id: str
    name: str
    created_at: int
    version: int = 1
    deleted_at: int | None = None
    deleted_name: str | None = None


class RunRecord(msgspec.Struct, frozen=True):
    """A run. A deleted one has a `name` that nobody can give, and its own as `deleted_name`."""

    record_version: int
    id: str
    project_id: str
    name: str
    created_at: int
    version: int = 1
    deleted_at: int | None = None
    deleted_name: str | None = None
    deleted_with: str | None = None


class OriginRecord(msgspec.Struct, frozen=True):
    """The checkpoint that an attempt resumed from: it may be purged, and the line still leads through it."""

    checkpoint_id: str
    attempt_id: str
    number: int
    sequence: int
    save: int
    step: int
    world_size: int
    opened_at: int
    committed_at: int


class AttemptRecord(msgspec.Struct, frozen=True):
    """An attempt and what it resumed from: the lineage. `decision` is None, `fresh` or a checkpoint id."""

    id: str
    number: int
    launch_id: str
    ordinal: int
    world_size: int
    created_at: int
    decision: str | None
    labels: dict[str, str]
    run_id: str = ""
    project_id: str = ""
    decided_at: int | None = None
    passed_over: list[Any] = []
    origin: OriginRecord | None = None


class ManifestRecord(msgspec.Struct, frozen=True):
    """One rank's manifest: where it is and what it must be."""

    rank: int
    object_key: str
    size_bytes: int
    body_digest: str
    content_digest: str
    arrived_at: int = 0


class OpenRecord(msgspec.Struct, frozen=True):
    """An unfinished checkpoint: where its manifests, which name no run, belong if the database is lost before the
    record of its commit is written.
    """

    record_version: int
    checkpoint_id: str
    project_id: str
    run_id: str
    attempt_id: str
    parent_id: str | None
    number: int
    save: int
    step: int
    world_size: int
    opened_at: int


class CommitRecord(msgspec.Struct, frozen=True):
    """A committed checkpoint at one version: what the commit fixed, and what may have changed since."""

    record_version: int
    checkpoint_id: str
    project_id: str
    project: str
    run_id: str
    run: str
    attempt: AttemptRecord
    parent_id: str | None
    number: int
    sequence: int
    save: int
    step: int
    world_size: int
    opened_at: int
    committed_at: int
    index_key: str
    index_digest: str
    raw_bytes: int
    stored_bytes: int
    new_bytes: int
    tensors: int
    metrics: dict[str, Any]
    environment: dict[str, Any]
    report: dict[str, Any]
    manifests: list[ManifestRecord]
    version: int = 0
    deleted_at: int | None = None
    pinned: bool = False
    pin_reason: str | None = None
    tags: dict[str, int] = {}
    """When each was set."""
    deleted_with: str | None = None
    deletion_reason: str | None = None
    run_created_at: int = 0
    project_created_at: int = 0


class _Envelope(msgspec.Struct, frozen=True):
    blake3: str
    record: msgspec.Raw


def encode_record(record: msgspec.Struct) -> memoryview:
    """The object that keeps a record: the record and the digest of its bytes. The same record gives the same bytes."""
    raw = msgspec.json.encode(record, order="deterministic")
    envelope = _Envelope(blake3(raw).hexdigest(), msgspec.Raw(raw))
    return memoryview(msgspec.json.encode(envelope))


def decode_record(body: bytes | bytearray | memoryview, kind: type[AnyRecord]) -> AnyRecord:
    """The record that `encode_record` was given; FormatError for bytes that are not exactly those it wrote."""
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
        if blake3(envelope.record).hexdigest() != envelope.blake3:
            raise FormatError("the record does not match its own digest")
        record = msgspec.json.decode(envelope.record, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise FormatError(f"this is no record: {exc}") from exc
    if bytes(body) != bytes(msgspec.json.encode(envelope)):
        raise FormatError("the record is written in another way than records are: its object is damaged")
    return record


def decode_any_record(body: memoryview, kind: type[AnyRecord]) -> AnyRecord:
    """Like `decode_record`, for rebuilds: it also takes records of the first version, which are plain JSON."""
    if bytes(body[: len(_BEGINNING)]) == _BEGINNING:
        return decode_record(body, kind)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as exc:
        raise FormatError(f"this is no record: {exc}") from exc
