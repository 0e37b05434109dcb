"""What `push` reads: one safetensors file, or a directory of shards with an index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from shardkeep.cli.safetensors_reader import FileTensor, SafetensorsFile
from shardkeep.errors import ConfigurationError, FormatError

INDEX_SUFFIX: Final = ".safetensors.index.json"
_MAX_INDEX_BYTES: Final = 256 << 20


class TensorSource:
    """All tensors of one file or one index, each once. Use it in a `with`."""

    def __init__(self, path: Path) -> None:
        """ConfigurationError if there is nothing to read at `path`; FormatError if what is there is malformed."""
        self._files = ExitStack()
        try:
            self.files = tuple(self._opened(path) for path in _data_files(path))
            self._check_names(path)
        except BaseException:
            self.close()
            raise

    @property
    def size_bytes(self) -> int:
        """The bytes of all tensors."""
        return sum(tensor.size_bytes for _, tensor in self.tensors())

    def tensors(self) -> Iterator[tuple[SafetensorsFile, FileTensor]]:
        """Every tensor with its file, in the order of their bytes."""
        for file in self.files:
            for tensor in file.tensors:
                yield file, tensor

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self, path: Path) -> SafetensorsFile:
        try:
            file = SafetensorsFile(path)
        except OSError as exc:
            raise ConfigurationError(f"{path} cannot be read: {exc.strerror}") from exc
        self._files.callback(file.close)
        return file

    def _check_names(self, path: Path) -> None:
        found: dict[str, str] = {}
        for file, tensor in self.tensors():
            other = found.setdefault(tensor.name, file.path.name)
            if other != file.path.name:
                raise FormatError(f"tensor {tensor.name!r} is in {other} and in {file.path.name}")
        if path.is_dir() and (index := _index_of(path)) is not None:
            _check_index(index, found)


def _data_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigurationError(f"{path} does not exist")
    index = _index_of(path)
    if index is None:
        files = sorted(path.glob("*.safetensors"))
        if len(files) != 1:
            raise ConfigurationError(
                f"{path} holds no *{INDEX_SUFFIX} and {len(files)} .safetensors files: give one file, or a directory "
                "with an index"
            )
        return files
    return [path / name for name in sorted(set(_weight_map(index).values()))]


def _index_of(path: Path) -> Path | None:
    found = sorted(path.glob(f"*{INDEX_SUFFIX}"))
    if len(found) > 1:
        raise ConfigurationError(f"{path} holds {len(found)} indexes, {found[0].name} and others: leave one")
    return found[0] if found else None


def _weight_map(index: Path) -> dict[str, str]:
    if index.stat().st_size > _MAX_INDEX_BYTES:
        raise FormatError(f"{index} is above {_MAX_INDEX_BYTES} bytes")
    try:
        document: Any = json.loads(index.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as exc:
        raise FormatError(f"{index} is not JSON: {exc}") from exc
    found = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(found, dict):
        raise FormatError(f"{index} has no weight_map")
    for name, file in found.items():
        if not isinstance(file, str) or not file or Path(file).name != file:
            raise FormatError(f"{index} names the file {file!r} for {name!r}; it must lie beside the index")
    return found


def _check_index(index: Path, found: dict[str, str]) -> None:
    wanted = _weight_map(index)
    for name, file in wanted.items():
        if found.get(name) != file:
            where = f"it is in {found[name]}" if name in found else "it is not there"
            raise FormatError(f"{index.name} says that tensor {name!r} is in {file}, and {where}")
    extra = sorted(set(found) - set(wanted))
    if extra:
        raise FormatError(
            f"{found[extra[0]]} holds tensor {extra[0]!r} and {len(extra) - 1} others that {index.name} does not list"
        )
