"""Settings of the service, read once: from the command line, else from the environment (SHARDKEEP_SERVICE_...)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from shardkeep.protocol.versions import MANIFEST_BYTES_LIMIT

ENVIRONMENT_PREFIX: Final = "SHARDKEEP_SERVICE_"
MEBIBYTE: Final = 1 << 20

Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]


class Settings(BaseSettings):
    """What an operator may choose. Times are seconds, sizes are bytes."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore")

    data_dir: Path = Path("data")
    """Where the embedded service keeps its database, its objects, its lock and its admin token."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8700
    """0 takes a free port; the log and the local token file name it."""
    database_url: str | None = None
    """An SQLAlchemy URL; None is an SQLite file in `data_dir`."""
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

    max_chunk_bytes: Bytes = 256 * MEBIBYTE
    max_manifest_bytes: Bytes = MANIFEST_BYTES_LIMIT
    max_json_bytes: Bytes = 128 * MEBIBYTE
    """One JSON body. An inventory of a million tensors is about 100 MB."""
    upload_budget_bytes: Bytes = 512 * MEBIBYTE
    """Bodies being received or stored at one time, all connections together."""
    upload_wait_seconds: Annotated[float, Field(ge=0)] = 10
    """How long an upload waits for a share of the budget before it is answered `busy`."""
    idle_timeout_seconds: Seconds = 60
    """How long a request body may stand still."""
    shutdown_seconds: Annotated[float, Field(ge=0)] = 60
    """How long running requests may take after SIGTERM. Give the process supervisor a longer grace than this."""

    storage_threads: Annotated[int, Field(ge=1, le=256)] = 16
    hashing_threads: Annotated[int, Field(ge=1, le=256)] = 4

    @property
    def resolved_database_url(self) -> str:
        """The URL given, or that of the SQLite file in `data_dir`."""
        return self.database_url or f"sqlite:///{self.data_dir / 'shardkeep.db'}"
