"""Where the token comes from: a text, or a file that somebody keeps fresh."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from shardkeep.errors import ConfigurationError

FILE_VARIABLE: Final = "SHARDKEEP_TOKEN_FILE"
_LONGEST_BYTES: Final = 4096


class TokenSource:
    """The token of a client. Thread-safe."""

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def text(self) -> str:
        """The token to send now."""
        return self._text

    def renew(self, refused: str) -> bool:
        """Whether there is another one than this, which the service refused; a fixed token has none."""
        return self._text != refused


class TokenFile(TokenSource):
    """A token in a file, read again when the service refuses the one it had: rotate it before the old one expires."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        super().__init__(self._read())

    def renew(self, refused: str) -> bool:
        """Reads the file again, unless another thread just did."""
        with self._lock:
            if self._text == refused:
                self._text = self._read()
            return self._text != refused

    def _read(self) -> str:
        try:
            with self._path.open("rb") as file:
                text = file.read(_LONGEST_BYTES).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigurationError(f"the token file {self._path} cannot be read: {exc}") from exc
        if not text:
            raise ConfigurationError(f"the token file {self._path} is empty")
        return text
