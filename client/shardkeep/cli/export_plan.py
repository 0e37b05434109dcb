"""Which file each tensor goes into, under which name and at which place; and in which pieces it is read. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardkeep.cli.safetensors_dtypes import FileForm, file_form
from shardkeep.cli.safetensors_header import METADATA_KEY, HeaderEntry
from shardkeep.cli.safetensors_metadata import FileNotes, TrueForm, data_bytes
from shardkeep.format.dtypes import dtype_named
from shardkeep.format.names import join_name, plain_text, split_name
from shardkeep.format.regions import Region, regions_of_flat_range

_RESERVED_SPELLING = "\\" + METADATA_KEY


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """A tensor of the checkpoint by its stored name."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    raw_bytes: int


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A tensor's place in a file."""

    tensor: SourceTensor
    header: HeaderEntry
    is_view: bool


@dataclass(frozen=True, slots=True)
class Shard:
    """One file to write."""

    file_name: str
    entries: tuple[ShardEntry, ...]
    notes: FileNotes

    @property
    def size_bytes(self) -> int:
        """The bytes of its tensors."""
        return self.entries[-1].header.stop if self.entries else 0


@dataclass(frozen=True, slots=True)
class WindowPiece:
    """One box of a tensor, and where its row-major bytes go in the window's buffer."""

    tensor: SourceTensor
    region: Region
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Window:
    """The next bytes of a file, read in one go."""

    pieces: tuple[WindowPiece, ...]
    size_bytes: int


def plan_names(names: Sequence[str], *, stripped_parts: int = 0) -> dict[str, str]:
    """Stored name -> name in the file: the plain text, or the stored name where the plain text would collide.

    The first `stripped_parts` parts are left out of the plain text, unless nothing would be left.
    """
    chosen = {name: plain_name(name, stripped_parts=stripped_parts) for name in names}
    while True:
        uses = Counter(chosen.values())
        again = [name for name, text in chosen.items() if text != name and uses[text] > 1]
        if not again:
            break
        chosen.update(zip(again, again, strict=True))
    return {name: _RESERVED_SPELLING if text == METADATA_KEY else text for name, text in chosen.items()}


def plain_name(name: str, *, stripped_parts: int = 0) -> str:
    """The plain text of a stored name without its first parts; with them if nothing would be left."""
    parts = split_name(name)[stripped_parts:] if stripped_parts else ()
    return plain_text(join_name(parts) if parts else name)


def plan_shards(
    tensors: Sequence[SourceTensor], *, max_shard_bytes: int, names: Mapping[str, str], aliases: Mapping[str, str]
) -> tuple[Shard, ...]:
    """Fill shards in the order given; a tensor above `max_shard_bytes` gets a shard of its own. At least one shard.

    `names` are the names in the files by stored name, `aliases` the stored name that each tied name stands for.
    """
    groups: list[list[SourceTensor]] = [[]]
    filled = 0
    for tensor in tensors:
        if groups[-1] and filled + tensor.raw_bytes > max_shard_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(tensor)
        filled += tensor.raw_bytes
    return tuple(
        _shard(_file_name(number, len(groups)), group, names, aliases) for number, group in enumerate(groups, start=1)
    )


def plan_windows(shard: Shard, window_bytes: int) -> Iterator[Window]:
    """The shard's data front to back in windows of at most `window_bytes`, cut between elements."""
    pieces: list[WindowPiece] = []
    filled = 0
    for entry in shard.entries:
        item_bytes = dtype_named(entry.tensor.dtype).item_bytes
        volume = entry.tensor.raw_bytes // item_bytes
        done = 0
        while done < volume:
            room = (window_bytes - filled) // item_bytes
            if room == 0:
                yield Window(tuple(pieces), filled)
                pieces, filled = [], 0
                continue
            stop = min(volume, done + room)
            pieces += _pieces(entry.tensor, done, stop, filled, item_bytes)
            filled += (stop - done) * item_bytes
            done = stop
    if filled:
        yield Window(tuple(pieces), filled)


def _pieces(tensor: SourceTensor, start: int, stop: int, filled: int, item_bytes: int) -> Iterator[WindowPiece]:
    for region in regions_of_flat_range(tensor.shape, start, stop):
        end = filled + region.volume * item_bytes
        yield WindowPiece(tensor, region, filled, end)
        filled = end


def _file_name(number: int, count: int) -> str:
    return "model.safetensors" if count == 1 else f"model-{number:05d}-of-{count:05d}.safetensors"


def _shard(
    file_name: str, tensors: Sequence[SourceTensor], names: Mapping[str, str], aliases: Mapping[str, str]
) -> Shard:
    # Wide elements first, so that every tensor starts at a multiple of its own element size.
    ordered = sorted(tensors, key=lambda tensor: (-dtype_named(tensor.dtype).item_bytes, tensor.name))
    entries = []
    position = 0
    for tensor in ordered:
        form = file_form(tensor.dtype, tensor.shape)
        entry = _entry(tensor, form, names[tensor.name], position)
        position = entry.header.stop
        entries.append(entry)
    return Shard(file_name, tuple(entries), _notes(entries, aliases))


def _entry(tensor: SourceTensor, form: FileForm, name: str, position: int) -> ShardEntry:
    stop = position + data_bytes(form.code, form.shape)
    return ShardEntry(tensor, HeaderEntry(name, form.code, form.shape, position, stop), form.is_view)


def _notes(entries: Sequence[ShardEntry], aliases: Mapping[str, str]) -> FileNotes:
    held = {entry.tensor.name: entry.header.name for entry in entries}
    return FileNotes(
        views={
            entry.header.name: TrueForm(entry.tensor.dtype, entry.tensor.shape) for entry in entries if entry.is_view
        },
        names={file: stored for stored, file in held.items() if not stored.endswith(join_name(file.split(".")))},
        aliases={alias: held[kept] for alias, kept in aliases.items() if kept in held},
    )
