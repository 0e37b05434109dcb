"""The local token file: how client and command line on one machine find a service and its token.

One file per data directory, readable by its owner only, in a directory readable by its owner only. A token found here
is for the URL in the same file and for no other.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

HOME_VARIABLE: Final = "SHARDKEEP_HOME"


@dataclass(frozen=True, slots=True)
class LocalToken:
    """A service of this machine and the token its first start made."""

    url: str
    token: str
    data_dir: str
    created_at: str
    """UTC, ISO 8601; the newest service comes first."""


def local_home() -> Path:
    """$SHARDKEEP_HOME, or ~/.config/shardkeep."""
    chosen = os.environ.get(HOME_VARIABLE)
    return Path(chosen) if chosen else Path.home() / ".config" / "shardkeep"


def write_local_token(*, url: str, token: str, data_dir: Path) -> Path:
    """Writes the file of the service in `data_dir` whole, replacing an older one, and gives its path."""
    resolved = str(data_dir.resolve())
    record = LocalToken(url, token, resolved, datetime.now(UTC).isoformat())
    path = _services_dir() / f"{hashlib.sha256(resolved.encode()).hexdigest()[:16]}.json"
    for directory in (path.parent.parent, path.parent):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private_file(path, json.dumps(asdict(record), indent=2).encode())
    return path


def read_local_tokens() -> list[LocalToken]:
    """Every local service, newest first; files that others own or may read, and malformed ones, are left out."""
    return sorted(_readable_tokens(), key=lambda token: token.created_at, reverse=True)


def write_private_file(path: Path, data: bytes) -> None:
    """Writes a file of mode 0600 so that a reader sees the old or the new content, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def is_private_file(path: Path) -> bool:
    """Whether a regular file exists there that only its owner, who is us, may read or write."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _services_dir() -> Path:
    return local_home() / "services"


def _readable_tokens() -> Iterator[LocalToken]:
    for path in sorted(_services_dir().glob("*.json")):
        if not is_private_file(path):
            continue
        try:
            record = json.loads(path.read_bytes())
            yield LocalToken(record["url"], record["token"], record["data_dir"], record["created_at"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
