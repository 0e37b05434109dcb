"""What the user chooses about uploading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from shardkeep.errors import ConfigurationError

LEAST_STAGING_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class UploadSettings:
    """`staging_bytes` is per rank; None means the shard's size, so that staging never waits for the network.

    `peer_seconds` is how long a rank waits for what the others must say before anything can be staged.
    `prepare_workers` threads fingerprint, encode and hash; `send_workers` threads send, one chunk each at a time.
    """

    staging_bytes: int | None = None
    codec: Literal["auto", "raw", "zstd", "planes"] = "auto"
    send_workers: int = 4
    prepare_workers: int = 2
    peer_seconds: float = 600.0

    def __post_init__(self) -> None:
        if self.staging_bytes is not None and self.staging_bytes < LEAST_STAGING_BYTES:
            raise ConfigurationError(
                f"staging_bytes={self.staging_bytes} is below the least, {LEAST_STAGING_BYTES} (8 MiB)"
            )
        if self.codec not in {"auto", "raw", "zstd", "planes"}:
            raise ConfigurationError(f"codec={self.codec!r} is none of auto, raw, zstd, planes")
        if self.send_workers < 1 or self.prepare_workers < 1:
            raise ConfigurationError("an upload needs at least one worker")
