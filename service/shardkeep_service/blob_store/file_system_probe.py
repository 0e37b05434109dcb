"""Trying out a directory as a blob store: whether it keeps what it is given, how fast, and how long it will."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Final

from shardkeep_service.blob_store.errors import BlobExists, BlobStoreError
from shardkeep_service.blob_store.file_system import FileSystemBlobStore
from shardkeep_service.blob_store.findings import Finding, Level
from shardkeep_service.database.data_directory import file_system_type, is_network_file_system

_BODY_BYTES: Final = 4_096
_SLOW_SYNC_SECONDS: Final = 0.5
_FREE_PART: Final = 0.10
_FREE_BYTES: Final = 10 << 30


def probe_directory(root: Path) -> list[Finding]:
    """Writes and removes a small object; says what an operator should know of the file system."""
    found = [_round_trip(root), _network(root)]
    if found[0].level is not Level.FAIL:
        found.append(_space(root))
    return found


def _round_trip(root: Path) -> Finding:
    key = f"probe/{secrets.token_hex(8)}"
    body, other = os.urandom(_BODY_BYTES), os.urandom(_BODY_BYTES)
    try:
        store = FileSystemBlobStore(root)
        started = time.monotonic()
        store.put(key, memoryview(body))
        seconds = time.monotonic() - started
        try:
            right = _is_kept(store, key, body, other)
        finally:
            store.delete([key])
    except BlobStoreError as error:
        return Finding("directory", Level.FAIL, str(error), "give the service a directory it may write to")
    if not right:
        return Finding("directory", Level.FAIL, "what was written did not come back", "do not use this file system")
    if seconds > _SLOW_SYNC_SECONDS:
        detail = f"making 4 KiB durable took {seconds:.2f} s"
        return Finding("directory", Level.WARN, detail, "every chunk waits for it: use a faster disk")
    return Finding("directory", Level.OK, f"put, range, list and delete work; 4 KiB are durable after {seconds:.3f} s")


def _is_kept(store: FileSystemBlobStore, key: str, body: bytes, other: bytes) -> bool:
    part = memoryview(bytearray(50))
    store.read_into(key, 100, part)
    listed = [blob.key for blob in store.list(key)]
    try:
        store.put(key, memoryview(other))
    except BlobExists:
        return part == body[100:150] and listed == [key]
    return False


def _network(root: Path) -> Finding:
    kind = file_system_type(root)
    if is_network_file_system(kind):
        detail = f"{root} is on a network file system ({kind})"
        return Finding(
            "file_system", Level.WARN, detail, "make sure that its fsync is real; a bucket is meant for this"
        )
    return Finding("file_system", Level.OK, f"{kind}, on this machine")


def _space(root: Path) -> Finding:
    usage = shutil.disk_usage(root)
    detail = f"{usage.free / 1e9:.1f} GB of {usage.total / 1e9:.1f} GB are free"
    if usage.free < _FREE_BYTES or usage.free < _FREE_PART * usage.total:
        advice = "saves fail once it is full: make room, or let retention delete more"
        return Finding("free_space", Level.WARN, detail, advice)
    return Finding("free_space", Level.OK, detail)
