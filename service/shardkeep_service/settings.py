"""Settings of the service, read once: from the command line, else from the environment (SHARDKEEP_SERVICE_...)."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import quote

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from shardkeep.protocol.versions import MANIFEST_BYTES_LIMIT
from shardkeep_service.blob_store.s3.settings import S3Settings
from shardkeep_service.database.options import DEFAULT_CONNECTIONS

ENVIRONMENT_PREFIX: Final = "SHARDKEEP_SERVICE_"
MEBIBYTE: Final = 1 << 20
_HOST_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9_.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")

Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]


class Settings(BaseSettings):
    """What an operator may choose. Times are seconds, sizes are bytes."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore", hide_input_in_errors=True
    )

    data_dir: Path = Path("data")
    """Where the embedded service keeps its database, its objects, its lock and its admin token."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8700
    """0 takes a free port; the log and the local token file name it."""
    database_url: SecretStr | None = None
    """`postgresql://user:password@host:5432/name?sslmode=verify-full`; None is an SQLite file in `data_dir`."""
    migrate_at_start: bool | None = None
    """Whether `serve` and the commands migrate the database; None: SQLite yes, PostgreSQL no, see `migrate`."""
    database_connections: Annotated[int, Field(ge=2, le=1000)] = DEFAULT_CONNECTIONS
    """At most so many by one process. Below the 40 threads that serve requests, some wait for a connection."""
    database_lock_timeout_seconds: Seconds = 10
    """A transaction that waits longer for another one is answered `busy`. PostgreSQL only, as the next two."""
    database_statement_timeout_seconds: Seconds = 60
    database_idle_seconds: Seconds = 60
    """The server ends a transaction that stands still for longer, so that a hanging replica frees its locks."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    job_token_seconds: Seconds = 604_800
    """How long a token minted for a job may live at most."""
    metrics_public: bool = False
    """Lets anyone who reaches the port read /metrics: only where that is meant. Else give Prometheus a token of scope
    `metrics`."""
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Where a worker process serves /metrics, on `host`; None is nowhere."""
    ui_enabled: bool = True
    """Whether there is a dashboard at /ui, and with it sign-ins and cookies."""
    ui_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Host names under which browsers reach the dashboard, beside those of this machine, with commas in between."""
    ui_plain_http: bool = False
    """Whether browsers may sign in at `ui_hosts` without TLS; on this machine they may always."""
    ui_sign_in_seconds: Annotated[float, Field(ge=60, le=31 * 86_400)] = 43_200
    """How long a sign-in lives at most; never longer than its token."""
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = ()
    """Addresses or networks of proxies whose X-Forwarded-For is believed: `10.0.0.7,10.1.0.0/16`."""
    fault: str | None = None
    """A test aid, see `observability.faults`. Never set it in production."""

    lease_seconds: Seconds = 120
    """How long a rank's session lives after its last request."""
    beat_seconds: Seconds = 30
    """How often a client with nothing else to say renews its session."""
    open_deadline_seconds: Seconds = 600
    """By then every rank must have opened the checkpoint."""
    open_limit_seconds: Seconds = 21_600
    """How long a checkpoint may stay open, however alive its ranks; collection spares what was claimed within it."""
    claim_repeat_seconds: Seconds = 3_600
    """A chunk claimed more recently is not written again when the next save names it."""
    validation_lease_seconds: Seconds = 60
    housekeeping_seconds: Seconds = 5
    """How often the worker looks for lapsed sessions, lapsed validations and commit records to write."""
    worker_lease_seconds: Seconds = 60
    """A background task whose worker was killed is another worker's after this."""

    scrub_bytes_per_second: Annotated[int, Field(ge=0)] = 64 * MEBIBYTE
    """How fast the worker reads stored objects again; 0 leaves it to `shardkeep-service scrub`. 10 TB take 42 hours."""
    scrub_interval_seconds: Seconds = 30 * 86_400
    """What was read more recently is not read again."""
    scrub_seconds: Seconds = 300
    """How often the worker looks for what is due."""
    retention_seconds: Seconds = 900
    """How often the policies are applied."""
    deleted_keep_seconds: Annotated[float, Field(ge=0)] = 604_800
    """How long what was deleted can be restored; then it is purged."""
    collection_seconds: Seconds = 3_600
    """How often collection begins a pass, or goes on with one."""
    collection_grace_seconds: Seconds = 86_400
    """How long collection waits at each step, beyond what safety asks for: before it condemns, before it removes."""
    collection_objects_per_second: Seconds = 500
    """So many objects are looked at or removed in a second, at most."""

    max_chunk_bytes: Bytes = 256 * MEBIBYTE
    max_manifest_bytes: Bytes = MANIFEST_BYTES_LIMIT
    max_json_bytes: Bytes = 128 * MEBIBYTE
    """One JSON body. An inventory of a million tensors is about 100 MB."""
    upload_budget_bytes: Bytes = 512 * MEBIBYTE
    """Bodies being received or stored at one time, all connections together."""
    upload_wait_seconds: Annotated[float, Field(ge=0)] = 10
    """How long an upload waits for a share of the budget before it is answered `busy`."""
    s3: S3Settings = Field(default_factory=S3Settings)
    """The bucket that holds the objects, see there (SHARDKEEP_SERVICE_S3_...); without one `data_dir` holds them."""
    direct: Literal["auto", "always", "never"] = "auto"
    """Whether clients send and fetch chunks at the object store itself, past the service. `auto`: where the store was
    seen to refuse wrong bytes. `always`: also elsewhere; then the service reads each chunk again before it counts.
    """
    direct_lifetime_seconds: Annotated[int, Field(ge=1, le=900)] = 900
    """How long a client may use the signed URL of a chunk."""
    header_timeout_seconds: Seconds = 30
    """Within it the headers of a request must be whole."""
    idle_timeout_seconds: Seconds = 60
    """How long a request body may stand still."""
    shutdown_seconds: Annotated[float, Field(ge=0)] = 60
    """How long running requests may take after SIGTERM. Give the process supervisor a longer grace than this."""

    storage_threads: Annotated[int, Field(ge=1, le=256)] = 16
    hashing_threads: Annotated[int, Field(ge=1, le=256)] = 4

    @field_validator("ui_hosts", "trusted_proxies", mode="before")
    @classmethod
    def _split(cls, given: object) -> object:
        """Commas between names, as environment variables give them."""
        return tuple(part.strip() for part in given.split(",") if part.strip()) if isinstance(given, str) else given

    @field_validator("ui_hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if _HOST_NAME.fullmatch(host.lower()) is None:
                raise ValueError(f"{host!r} is no host name; write it without scheme, port and path: a.example.com")
        return tuple(host.lower() for host in hosts)

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                raise ValueError(f"{proxy!r} is no address and no network; write 10.0.0.7 or 10.1.0.0/16") from None
        return proxies

    @field_validator("database_url")
    @classmethod
    def _check_database_url(cls, url: SecretStr | None) -> SecretStr | None:
        """Says what is wrong without the URL, which holds a password."""
        if url is None or not url.get_secret_value():
            return url
        try:
            backend = make_url(url.get_secret_value()).get_backend_name()
        except ArgumentError:
            raise ValueError("it is no URL; write postgresql://user:password@host:5432/name") from None
        if backend not in ("postgresql", "postgres", "sqlite"):
            raise ValueError("only PostgreSQL and SQLite are known; write postgresql://user:password@host:5432/name")
        return url

    @property
    def resolved_database_url(self) -> str:
        """The URL given, password included, or that of the SQLite file in `data_dir`. Never log it."""
        if not self.database_url:
            return f"sqlite:///{self.data_dir / 'shardkeep.db'}"
        return self.database_url.get_secret_value()

    @property
    def is_embedded(self) -> bool:
        """Whether the database is an SQLite file: then this process is the only one of its service."""
        return self.resolved_database_url.startswith("sqlite")

    @property
    def migrates_at_start(self) -> bool:
        """What `migrate_at_start` comes to."""
        return self.is_embedded if self.migrate_at_start is None else self.migrate_at_start

    @property
    def secrets(self) -> list[str]:
        """Values that no log line may show. Credentials that boto3 finds itself are known by their shape only."""
        hidden = (self.s3.secret_access_key, self.s3.session_token)
        found = [secret.get_secret_value() for secret in hidden if secret is not None]
        if self.database_url:
            password = make_url(self.database_url.get_secret_value()).password
            found += [str(password), quote(str(password), safe="")] if password else []
        return found
