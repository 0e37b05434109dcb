"""Fingerprints: xxh3-128 of raw bytes. They detect damage and divergence; they are no defence against forgery."""

from __future__ import annotations

from collections.abc import Iterable

import xxhash

from shardkeep.format.buffers import Buffer

FINGERPRINT_BYTES = 16


def fingerprint(data: Buffer) -> bytes:
    """The 16 bytes (canonical, big-endian) of xxh3-128 over `data`."""
    return xxhash.xxh3_128_digest(data)


def fingerprint_root(fingerprints: bytes | Iterable[bytes]) -> bytes:
    """xxh3-128 over the concatenated fingerprints; also for one, so a root never equals a fingerprint by accident."""
    joined = fingerprints if isinstance(fingerprints, bytes) else b"".join(fingerprints)
    if len(joined) % FINGERPRINT_BYTES:
        raise ValueError(f"{len(joined)} bytes are no whole number of fingerprints")
    return xxhash.xxh3_128_digest(joined)
