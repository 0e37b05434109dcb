"""`shardkeep diff`: what changed from one checkpoint to another, without reading a tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from shardkeep.cli.comparison import (
    Change,
    Segments,
    StoredSegment,
    TensorChange,
    TensorShape,
    compare_contents,
    compare_shapes,
)
from shardkeep.cli.human_text import counted, shape_text, size_text
from shardkeep.cli.invocation import Invocation
from shardkeep.cli.output import Screen
from shardkeep.cli.references import REFERENCE_HELP, find_checkpoint
from shardkeep.cli.tensor_selection import below, parse_prefix
from shardkeep.connection.service_client import ServiceClient
from shardkeep.format.load_plan import LoadRequest
from shardkeep.format.names import plain_text
from shardkeep.format.regions import Region
from shardkeep.protocol.messages import CheckpointInfo, TensorInfo

_BATCH_BYTES = 8 << 30
"""Raw bytes whose fingerprints are compared at a time: some 8,000 segments of each side."""
_BATCH_TENSORS = 1000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("diff")(diff)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two checkpoints."""

    info: CheckpointInfo
    tensors: dict[str, TensorInfo]


def diff(
    context: typer.Context,
    before: Annotated[str, typer.Argument(metavar="A", help=REFERENCE_HELP)],
    after: Annotated[str, typer.Argument(metavar="B", help="Likewise.")],
    *,
    prefix: Annotated[str | None, typer.Option("--prefix", help="Only names below this one.")] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="List unchanged tensors too.")] = False,
) -> None:
    """Compare two checkpoints by the fingerprints of their segments; no tensor is read.

    Tensors that both have, cut into other slices (by another world size, say), cannot be told equal that way and are
    listed as recut.
    """
    invocation: Invocation = context.obj
    service, parts = invocation.service, parse_prefix(prefix)
    a, b = (_side(service, find_checkpoint(service, text, invocation.output), parts) for text in (before, after))
    changes = sorted(_compare(service, a, b), key=lambda change: change.name)
    document = _document(a.info, b.info, changes)
    invocation.output.answer(document, show=lambda screen: _show(screen, document, changes, everything=everything))


def _side(service: ServiceClient, info: CheckpointInfo, prefix: tuple[str, ...]) -> Side:
    return Side(info, {tensor.name: tensor for tensor in below(service.tensors(info.id), prefix)})


def _compare(service: ServiceClient, a: Side, b: Side) -> Iterator[TensorChange]:
    undecided: list[TensorInfo] = []
    for name in a.tensors.keys() | b.tensors.keys():
        change = compare_shapes(name, _shape(a.tensors.get(name)), _shape(b.tensors.get(name)))
        if change is not None:
            yield change
        else:
            undecided.append(b.tensors[name])
    for batch in _batches(sorted(undecided, key=lambda tensor: tensor.name)):
        names = [tensor.name for tensor in batch]
        before, after = _segments(service, a.info.id, names), _segments(service, b.info.id, names)
        for tensor in batch:
            shape = _shape(tensor)
            assert shape is not None  # the tensor is there
            yield compare_contents(tensor.name, shape, before[tensor.name], after[tensor.name])


def _shape(tensor: TensorInfo | None) -> TensorShape | None:
    return None if tensor is None else TensorShape(tensor.dtype, tuple(tensor.shape), tensor.raw_bytes)


def _batches(tensors: Sequence[TensorInfo]) -> Iterator[list[TensorInfo]]:
    batch: list[TensorInfo] = []
    size = 0
    for tensor in tensors:
        if batch and (size + tensor.raw_bytes > _BATCH_BYTES or len(batch) == _BATCH_TENSORS):
            yield batch
            batch, size = [], 0
        batch.append(tensor)
        size += tensor.raw_bytes
    if batch:
        yield batch


def _segments(service: ServiceClient, checkpoint_id: str, names: Sequence[str]) -> dict[str, Segments]:
    """Per tensor its segments; of buffers that differ by rank, rank 0's."""
    plan = service.load_plan(checkpoint_id, LoadRequest.whole(names, rank=0))
    found: dict[str, dict[tuple[Region, int], StoredSegment]] = defaultdict(dict)
    for piece in plan.pieces():
        for segment in piece.segments:
            stored = StoredSegment(segment.fingerprint, segment.raw_bytes)
            found[names[piece.item]][piece.source, segment.raw_start] = stored
    return {name: found[name] for name in names}


def _document(a: CheckpointInfo, b: CheckpointInfo, changes: Sequence[TensorChange]) -> dict[str, Any]:
    counts = {change.value: sum(item.change is change for item in changes) for change in Change}
    return {
        "a": {"id": a.id, "run": f"{a.project}/{a.run}", "step": a.step},
        "b": {"id": b.id, "run": f"{b.project}/{b.run}", "step": b.step},
        "identical": all(item.change is Change.UNCHANGED for item in changes),
        "counts": counts,
        "bytes": sum(item.raw_bytes for item in changes),
        "reused_bytes": sum(item.reused_bytes for item in changes),
        "tensors": [_change_document(item) for item in changes],
    }


def _change_document(item: TensorChange) -> dict[str, Any]:
    return {
        "name": item.name,
        "change": item.change.value,
        "bytes": item.raw_bytes,
        "reused_bytes": item.reused_bytes,
        "before": _shape_document(item.before),
        "after": _shape_document(item.after),
    }


def _shape_document(shape: TensorShape | None) -> dict[str, Any] | None:
    return None if shape is None else {"dtype": shape.dtype, "shape": list(shape.shape)}


def _show(screen: Screen, document: dict[str, Any], changes: Sequence[TensorChange], *, everything: bool) -> None:
    for letter in ("a", "b"):
        side = document[letter]
        screen.line(f"{letter.upper()}  {side['id']}  {side['run']}, step {side['step']}")
    counts = ", ".join(f"{count} {change}" for change, count in document["counts"].items() if count)
    screen.line(
        f"{counted(len(changes), 'tensor')}: {counts or 'none'}; {size_text(document['reused_bytes'])} of "
        f"{size_text(document['bytes'])} in B are segments of A"
    )
    rows = [
        (item.change.value, plain_text(item.name), _how(item), size_text(item.raw_bytes), size_text(item.reused_bytes))
        for item in changes
        if everything or item.change is not Change.UNCHANGED
    ]
    if rows:
        screen.table(("CHANGE", "TENSOR", "DTYPE AND SHAPE", "SIZE", "REUSED"), rows, right=("SIZE", "REUSED"))


def _how(item: TensorChange) -> str:
    texts = [f"{shape.dtype} {shape_text(shape.shape)}" for shape in (item.before, item.after) if shape is not None]
    return " -> ".join(dict.fromkeys(texts))
