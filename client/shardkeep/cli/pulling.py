"""`shardkeep pull`: a checkpoint as safetensors files in a directory."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from shardkeep.cli.exit_codes import CommandError, ExitCode, usage_error
from shardkeep.cli.export_directory import VALUES_NAME, ExportDirectory
from shardkeep.cli.export_plan import SourceTensor, plain_name, plan_names, plan_shards
from shardkeep.cli.exporting import Export, write_index, write_shards
from shardkeep.cli.human_text import counted, parse_size, size_text
from shardkeep.cli.invocation import Invocation
from shardkeep.cli.output import Output, Screen
from shardkeep.cli.references import REFERENCE_HELP, find_checkpoint
from shardkeep.cli.safetensors_metadata import origin_metadata
from shardkeep.cli.tensor_selection import WEIGHT_KINDS, below, parse_prefix
from shardkeep.cli.values_json import values_document
from shardkeep.errors import NotFound
from shardkeep.format.names import plain_text, split_name
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import TensorInfo
from shardkeep.store.checkpoint import Checkpoint
from shardkeep.store.stored_values import StoredValues, stored_aliases

_DEFAULT_SHARD = "5GB"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("pull")(pull)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which part of the checkpoint to write."""

    prefix: tuple[str, ...]
    weights_only: bool
    strip_prefix: bool
    max_shard_bytes: int

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return not self.prefix and not self.weights_only

    @property
    def stripped(self) -> tuple[str, ...]:
        """The parts that names are written without."""
        return self.prefix if self.strip_prefix else ()

    def alias_text(self, alias: str) -> str:
        """A tied stored name as it is written: like the tensors' names, if it is below the prefix."""
        is_below = split_name(alias)[: len(self.stripped)] == self.stripped
        return plain_name(alias, stripped_parts=len(self.stripped) if is_below else 0)


def pull(
    context: typer.Context,
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help=REFERENCE_HELP)],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made if absent; must be empty.")],
    *,
    prefix: Annotated[str | None, typer.Option("--prefix", help="Only names below this one, such as model.")] = None,
    strip_prefix: Annotated[bool, typer.Option("--strip-prefix", help="Leave the prefix out of the names.")] = False,
    weights: Annotated[
        bool, typer.Option("--weights", help="Only parameters and buffers: no optimizer state, no values.")
    ] = False,
    max_shard_size: Annotated[
        str, typer.Option("--max-shard-size", help="Largest file, such as 5GB or 512MiB.")
    ] = _DEFAULT_SHARD,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier pull left in DIR.")] = False,
) -> None:
    """Write a checkpoint as safetensors shards with an index, and its values as JSON."""
    invocation: Invocation = context.obj
    wanted = Wanted(parse_prefix(prefix), weights, strip_prefix, _shard_bytes(max_shard_size))
    if strip_prefix and not wanted.prefix:
        raise usage_error("--strip-prefix needs --prefix")
    info = find_checkpoint(invocation.service, checkpoint, invocation.output)
    source = Checkpoint(invocation.transfer_client().service, info, shows_progress=False)
    tensors = _choose_tensors(source, wanted)
    try:
        document = _write(source, tensors, wanted, directory, overwrite=overwrite, output=invocation.output)
    except OSError as exc:
        raise CommandError(
            f"writing into {directory} failed: {exc.strerror or exc}", code="write_failed", exit_code=ExitCode.FAILED
        ) from exc
    invocation.output.answer(document, show=lambda screen: _show(screen, document))


def _shard_bytes(text: str) -> int:
    try:
        size = parse_size(text)
    except ValueError as exc:
        raise usage_error(f"--max-shard-size: {exc}") from exc
    if size < 1:
        raise usage_error("--max-shard-size must be above 0")
    return size


def _choose_tensors(source: Checkpoint, wanted: Wanted) -> list[TensorInfo]:
    chosen = [
        tensor
        for tensor in below(source.tensors(), wanted.prefix)
        if not wanted.weights_only or tensor.kind.lower() in WEIGHT_KINDS
    ]
    if not chosen and not wanted.is_everything:
        raise NotFound(
            f"{source.id} has no {'weights' if wanted.weights_only else 'tensors'}"
            + (f" below {'.'.join(wanted.prefix)!r}" if wanted.prefix else ""),
            code=ErrorCode.UNKNOWN_TENSOR,
            status=404,
        )
    return chosen


def _write(
    source: Checkpoint, tensors: Sequence[TensorInfo], wanted: Wanted, path: Path, *, overwrite: bool, output: Output
) -> dict[str, Any]:
    aliases = {wanted.alias_text(alias): kept for alias, kept in _aliases(source).items()}
    names = plan_names([tensor.name for tensor in tensors], stripped_parts=len(wanted.stripped))
    shards = plan_shards(
        [SourceTensor(item.name, item.dtype, tuple(item.shape), item.raw_bytes) for item in tensors],
        max_shard_bytes=wanted.max_shard_bytes,
        names=names,
        aliases=aliases,
    )
    origin = origin_metadata(checkpoint_id=source.id, run=f"{source.info.project}/{source.info.run}", step=source.step)
    export = Export(shards, origin)
    with ExportDirectory(path, overwrite=overwrite) as directory:
        directory.check_space(export.size_bytes)
        with output.progress(f"pulling {source.id}", export.size_bytes) as advance:
            write_shards(export, directory, functools.partial(source.read, rank=0), advance)
        if wanted.is_everything:
            _write_values(source, directory, output)
        write_index(export, directory)
        directory.publish()
    _tell(source, names, export, output, wanted)
    return _document(source, path, export, names, values=wanted.is_everything)


def _aliases(source: Checkpoint) -> dict[str, str]:
    """Tied names and the stored name that holds their tensor, over all ranks that say something of their own."""
    return {str(alias): str(kept) for alias, kept in stored_aliases(source.readable_values()).items()}


def _write_values(source: Checkpoint, directory: ExportDirectory, output: Output) -> None:
    values = source.readable_values(0)
    records = [values.record(path) for path in values]
    found = values_document(records, StoredValues(source.manifest, source.read).decode)
    document = {"checkpoint": source.id, "step": source.step, "rank": 0, "values": found.values}
    directory.write_text(VALUES_NAME, json.dumps(document, indent=2, allow_nan=False) + "\n")
    if found.encoded:
        output.note(
            f"{VALUES_NAME} keeps {counted(len(found.encoded), 'value')} in stored form: {_some(found.encoded)}"
        )
    if found.described:
        output.note(f"{VALUES_NAME} only describes {counted(len(found.described), 'value')}: {_some(found.described)}")
    if source.info.world_size > 1 and any(record.per_rank for record in records):
        output.note(
            f"{VALUES_NAME} holds rank 0's values; those of {source.info.world_size - 1} other ranks are not written"
        )


def _tell(source: Checkpoint, names: dict[str, str], export: Export, output: Output, wanted: Wanted) -> None:
    """Say on stderr what is written otherwise than it is stored."""
    count = len(wanted.stripped)
    renamed = [stored for stored, file in names.items() if file != plain_name(stored, stripped_parts=count)]
    if renamed:
        output.note(f"written under their stored names, since their plain ones collide: {_some(sorted(renamed))}")
    views = {name: form.dtype for shard in export.shards for name, form in shard.notes.views.items()}
    if views:
        shown = ", ".join(f"{name} ({dtype})" for name, dtype in sorted(views.items())[:5])
        output.note(f"written as views of another dtype, the true one is in the metadata: {shown}{_left(len(views))}")
    report = source.info.report
    divergent = [name for name in report.divergent_buffers if name in names] if report is not None else []
    if divergent:
        output.note(f"these buffers differ by rank, rank 0's are written: {_some(divergent)}")


def _some(names: Sequence[str]) -> str:
    return ", ".join(plain_text(name) for name in names[:5]) + _left(len(names))


def _left(count: int) -> str:
    return f" and {count - 5} more" if count > 5 else ""


def _document(source: Checkpoint, path: Path, export: Export, names: dict[str, str], *, values: bool) -> dict[str, Any]:
    notes = [shard.notes for shard in export.shards]
    return {
        "checkpoint_id": source.id,
        "step": source.step,
        "directory": str(path),
        "files": [
            {"name": shard.file_name, "tensors": len(shard.entries), "tensor_bytes": shard.size_bytes}
            for shard in export.shards
        ],
        "tensors": len(names),
        "tensor_bytes": export.size_bytes,
        "values": VALUES_NAME if values else None,
        "names": {file: stored for note in notes for file, stored in note.names.items()},
        "views": {file: form.dtype for note in notes for file, form in note.views.items()},
        "aliases": {alias: file for note in notes for alias, file in note.aliases.items()},
    }


def _show(screen: Screen, document: dict[str, Any]) -> None:
    files = document["files"]
    screen.line(
        f"{document['checkpoint_id']} (step {document['step']}): {counted(document['tensors'], 'tensor')}, "
        f"{size_text(document['tensor_bytes'])} in {counted(len(files), 'file')} of {document['directory']}"
    )
