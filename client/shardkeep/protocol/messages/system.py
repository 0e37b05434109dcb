"""The system: versions, the database, the object store and the settings, without secrets."""

from __future__ import annotations

from datetime import datetime

from shardkeep.protocol.messages.bodies import Answer


class ProbeFinding(Answer):
    """What one probe of the object store or the database found."""

    name: str
    passed: bool
    detail: str


class DatabaseInfo(Answer):
    """The catalogue's database."""

    kind: str
    version: str
    revision: str | None
    newest_revision: str
    size_bytes: int | None
    connections_in_use: int
    connections_limit: int


class StoreInfo(Answer):
    """The object store."""

    kind: str
    """`file_system` or `s3`."""
    place: str
    """The directory, or endpoint, bucket and prefix; never a credential."""
    direct: bool
    """Whether clients send and fetch chunks at the store itself."""
    abilities: list[ProbeFinding]


class SettingInfo(Answer):
    """One setting; `value` of a secret is `set` or `not set`."""

    name: str
    value: str
    secret: bool
    is_default: bool


class SystemInfo(Answer):
    """GET /v1/system (admin of all projects)."""

    service_version: str
    python_version: str
    started_at: datetime
    now: datetime
    database: DatabaseInfo
    store: StoreInfo
    settings: list[SettingInfo]
