"""The directory `pull` writes into: files appear in it whole or not at all, and its index last."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from pathlib import Path
from typing import Final, Self

from shardkeep.cli.exit_codes import CommandError, ExitCode, refusal, usage_error
from shardkeep.cli.human_text import size_text
from shardkeep.cli.safetensors_writer import SafetensorsWriter, TemporaryFile, sync_directory

INDEX_NAME: Final = "model.safetensors.index.json"
VALUES_NAME: Final = "values.json"
_OURS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.partial")


class ExportDirectory:
    """One pull's hold on its directory. Use it in a `with`: what was not published is removed at the end."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        """Make the directory. CommandError if it is not empty and `overwrite` not given, or if it is in use."""
        self.path = path
        self._files: list[SafetensorsWriter | TemporaryFile] = []
        if path.exists() and not path.is_dir():
            raise usage_error(f"{path} is a file; pull writes into a directory", code="not_a_directory")
        path.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._take(overwrite=overwrite)
        except BaseException:
            os.close(self._descriptor)
            raise

    def check_space(self, size_bytes: int) -> None:
        """CommandError if the file system has less than `size_bytes` free."""
        free = shutil.disk_usage(self.path).free
        if free < size_bytes:
            raise CommandError(
                f"{self.path} has {size_text(free)} free and the checkpoint needs {size_text(size_bytes)}",
                code="no_space",
                exit_code=ExitCode.FAILED,
            )

    def add(self, file: SafetensorsWriter | TemporaryFile) -> None:
        """Publish this file with the others; before them, if it was added before."""
        self._files.append(file)

    def write_text(self, name: str, text: str) -> None:
        """A small file, written now and published with the others."""
        file = TemporaryFile(self.path / name)
        self.add(file)
        file.write(memoryview(text.encode("utf-8")))
        file.finish()

    def publish(self) -> None:
        """Give every file its name, in order. Until the last one, the index, is there, the directory has no index."""
        (self.path / INDEX_NAME).unlink(missing_ok=True)
        for file in self._files:
            file.publish()
        kept = {file.path.name for file in self._files}
        for old in self.path.iterdir():
            if old.name not in kept and (_OURS.fullmatch(old.name) or old.name == VALUES_NAME):
                old.unlink()
        sync_directory(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.discard()
        os.close(self._descriptor)

    def _take(self, *, overwrite: bool) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise refusal(f"another pull is writing into {self.path}", code="directory_in_use") from exc
        present = sorted(file.name for file in self.path.iterdir())
        leftover = [name for name in present if _LEFTOVER.fullmatch(name)]
        if len(present) > len(leftover) and not overwrite:
            first = next(name for name in present if name not in leftover)
            raise refusal(
                f"{self.path} is not empty ({first} is in it): give another directory, or --overwrite to replace an "
                "earlier pull there",
                code="directory_not_empty",
            )
        for name in leftover:
            (self.path / name).unlink(missing_ok=True)
