"""The data directory: owned by one process at a time, on a local file system."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LOCK_FILE: Final = "service.lock"
_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK_TYPES: Final = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "gfs2",
    "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs", "virtiofs",
})  # fmt: skip


class DataDirectoryRefused(Exception):
    """The directory cannot be used: another process has it, or SQLite would not be safe on it."""


@contextlib.contextmanager
def owned_directory(directory: Path) -> Iterator[None]:
    """Holds the directory's lock; DataDirectoryRefused names the process that has it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 20, 0).decode().strip() or "unknown"
            raise DataDirectoryRefused(
                f"the data directory {directory} is in use by the service with pid {owner};"
                " stop it first, or give this one its own --data"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def check_local(directory: Path) -> None:
    """DataDirectoryRefused where the directory is on a network file system: SQLite's locks do not hold there."""
    kind = file_system_type(directory)
    if is_network_file_system(kind):
        raise DataDirectoryRefused(
            f"{directory} is on a network file system ({kind}), where SQLite can be corrupted;"
            " choose a local directory, or a PostgreSQL database with SHARDKEEP_SERVICE_DATABASE_URL"
        )


def is_network_file_system(kind: str) -> bool:
    """Whether other machines may write to a file system of this type."""
    return kind in _NETWORK_TYPES


def file_system_type(directory: Path, *, mounts: Path = _MOUNTS) -> str:
    """The type of the file system that holds `directory`, or `unknown` where the system does not say."""
    if not mounts.exists():
        return "unknown"
    resolved = directory.resolve()
    best, kind = Path("/"), "unknown"
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split()[4].replace("\\040", " "))
        if resolved.is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, kind = point, after.split()[0]
    return kind
