"""The files of the dashboard, read once into memory: a request is a look into a dictionary.

So no path from outside ever reaches the file system. They are about a megabyte, and change only with the version.
"""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BUILT: Final = Path(__file__).parent / "static"
"""Where `make dashboard` puts what it builds."""
INDEX: Final = "index.html"
HASHED_FOLDER: Final = "assets"
"""The names in it change with the content, so browsers may keep them for good."""

_KINDS: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/vnd.microsoft.icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_ANY_KIND: Final = "application/octet-stream"
_SHRINKING: Final = frozenset({".css", ".html", ".js", ".json", ".map", ".svg", ".txt", ".webmanifest"})


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file. `zipped` is its gzip form, None where that is no smaller."""

    kind: str
    content: bytes
    zipped: bytes | None
    digest: str
    """Of the content: what its ETags are made of."""


class DashboardFiles:
    """What lies in a folder that was built, by path. Thread-safe; one per application."""

    def __init__(self, folder: Path = BUILT) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._files: Mapping[str, StaticFile] = {}

    def load(self) -> Mapping[str, StaticFile]:
        """The files, read at the first call that finds an index page; none while the dashboard is not built."""
        if not self._files:
            with self._lock:
                if not self._files and (self._folder / INDEX).is_file():
                    self._files = _read(self._folder)
        return self._files


def _read(folder: Path) -> dict[str, StaticFile]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): _static_file(path) for path in paths}


def _static_file(path: Path) -> StaticFile:
    content = path.read_bytes()
    zipped = gzip.compress(content, mtime=0) if path.suffix in _SHRINKING else None
    return StaticFile(
        kind=_KINDS.get(path.suffix, _ANY_KIND),
        content=content,
        zipped=zipped if zipped is not None and len(zipped) < len(content) else None,
        digest=hashlib.sha256(content).hexdigest()[:32],
    )
