"""`shardkeep show`: everything the service knows of one checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from shardkeep.cli.exit_codes import usage_error
from shardkeep.cli.human_text import age_text, counted, metric_text, printable, ranks_text, shape_text, size_text
from shardkeep.cli.invocation import Invocation
from shardkeep.cli.listing import state_text
from shardkeep.cli.output import Screen
from shardkeep.cli.references import REFERENCE_HELP, find_checkpoint
from shardkeep.cli.tensor_selection import below, parse_prefix
from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import NotFound
from shardkeep.format.names import plain_text
from shardkeep.protocol.messages import (
    AbortInfo,
    CheckpointInfo,
    CheckpointReport,
    CheckpointState,
    TensorInfo,
)

_ANY_STATE = (
    CheckpointState.COMMITTED, CheckpointState.VALIDATING, CheckpointState.OPEN, CheckpointState.DELETED,
    CheckpointState.ABORTED, CheckpointState.PURGED, CheckpointState.UNCONFIRMED,
)  # fmt: skip
_LINEAGE_LIMIT = 10
_LISTED_NAMES = 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("show")(show)


def show(
    context: typer.Context,
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help=REFERENCE_HELP)],
    *,
    tensors: Annotated[bool, typer.Option("--tensors", help="List its tensors too.")] = False,
    prefix: Annotated[str | None, typer.Option("--prefix", help="With --tensors: only names below this one.")] = None,
) -> None:
    """Show one checkpoint: state, sizes, lineage, validation report, and why it was aborted."""
    invocation: Invocation = context.obj
    if prefix is not None and not tensors:
        raise usage_error("--prefix chooses among tensors: give --tensors too")
    service = invocation.service
    info = find_checkpoint(service, checkpoint, invocation.output, states=_ANY_STATE)
    lineage = _lineage(service, info)
    listed = _tensors(service, info, prefix) if tensors else None
    document = {"checkpoint": info, "lineage": lineage}
    if listed is not None:
        document["tensors"] = listed
    invocation.output.answer(document, show=lambda screen: _show(screen, info, lineage, listed))


def _tensors(service: ServiceClient, info: CheckpointInfo, prefix: str | None) -> list[TensorInfo]:
    return list(below(service.tensors(info.id), parse_prefix(prefix)))


def _lineage(service: ServiceClient, info: CheckpointInfo) -> list[dict[str, object]]:
    """The parents, nearest first; a purged one ends the list."""
    found: list[dict[str, object]] = []
    parent_id = info.parent_id
    while parent_id is not None and len(found) < _LINEAGE_LIMIT:
        try:
            parent = service.checkpoint(parent_id)
        except NotFound:
            found.append({"id": parent_id, "step": None, "state": CheckpointState.PURGED.value, "attempt_number": None})
            break
        found.append(
            {"id": parent.id, "step": parent.step, "state": parent.state.value, "attempt_number": parent.attempt_number}
        )
        parent_id = parent.parent_id
    return found


def _show(
    screen: Screen, info: CheckpointInfo, lineage: Sequence[dict[str, object]], tensors: Sequence[TensorInfo] | None
) -> None:
    screen.fields(_fields(info))
    if info.abort is not None:
        _show_abort(screen, info.abort, info.missing_ranks)
    if info.metrics:
        screen.line("Metrics")
        screen.fields([(name, metric_text(number)) for name, number in sorted(info.metrics.items())], indent=2)
    if lineage:
        screen.line("Lineage")
        screen.fields([_lineage_row(parent) for parent in lineage], indent=2)
    if info.report is not None:
        _show_report(screen, info.report)
    if info.environment:
        screen.line("Environment")
        screen.fields([(name, str(value)) for name, value in sorted(info.environment.items())], indent=2)
    if tensors is not None:
        _show_tensors(screen, tensors)


def _fields(info: CheckpointInfo) -> list[tuple[str, str]]:
    now = datetime.now(UTC)
    fields = [
        ("Checkpoint", info.id),
        ("Run", f"{info.project}/{info.run}"),
        ("Step", str(info.step)),
        ("State", state_text(info)),
        ("Attempt", f"{info.attempt_number} (save {info.save})"),
        ("Ranks", str(info.world_size)),
        ("Opened", f"{info.opened_at:%Y-%m-%d %H:%M:%S} UTC, {age_text(info.opened_at, now)}"),
    ]
    if info.committed_at is not None:
        committed = f"{info.committed_at:%Y-%m-%d %H:%M:%S} UTC, {age_text(info.committed_at, now)}"
        fields.append(("Committed", f"{committed}, sequence {info.sequence}"))
    if info.deleted_at is not None:
        fields.append(("Deleted", f"{info.deleted_at:%Y-%m-%d %H:%M:%S} UTC, {age_text(info.deleted_at, now)}"))
    if info.state in {CheckpointState.OPEN, CheckpointState.VALIDATING}:
        fields.append(("Arrived", f"{info.arrived} of {info.world_size} ranks{_missing(info.missing_ranks)}"))
    if info.tensors is not None:
        fields.append(("Tensors", f"{info.tensors:,}"))
    if info.raw_bytes is not None:
        stored = f"{size_text(info.stored_bytes)} stored, {size_text(info.new_bytes)} of it new"
        fields.append(("Size", f"{size_text(info.raw_bytes)}, {stored}"))
    if info.pinned:
        fields.append(("Pinned", info.pin_reason or "no reason given"))
    return fields


def _missing(ranks: Sequence[int]) -> str:
    return f", missing ranks {ranks_text(ranks)}" if ranks else ""


def _show_abort(screen: Screen, abort: AbortInfo, missing_ranks: Sequence[int]) -> None:
    rows = [("why", f"{abort.reason} [{abort.code}]")]
    if abort.rank is not None:
        rows.append(("rank", str(abort.rank)))
    if abort.ranks:
        rows.append(("ranks", ranks_text(abort.ranks)))
    if abort.tensors:
        rows.append(("tensors", _names(abort.tensors)))
    if missing_ranks:
        rows.append(("missing ranks", ranks_text(missing_ranks)))
    screen.line("Aborted")
    screen.fields(rows, indent=2)


def _lineage_row(parent: dict[str, object]) -> tuple[str, str]:
    if parent["step"] is None:
        return str(parent["id"]), "purged"
    return str(parent["id"]), f"step {parent['step']}, {parent['state']}, attempt {parent['attempt_number']}"


def _show_report(screen: Screen, report: CheckpointReport) -> None:
    rows = [
        ("buffers that differ by rank", report.divergent_buffers),
        ("values kept per rank", report.per_rank_values),
        ("tensors the parent had and nobody saved", report.tensors_gone),
    ]
    lines = [(label, _names(names)) for label, names in rows if names]
    lines += [("warning", warning) for warning in report.warnings]
    if lines:
        screen.line("Report")
        screen.fields(lines, indent=2)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(plain_text(name) for name in names[:_LISTED_NAMES])
    return f"{shown} and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else shown


def _show_tensors(screen: Screen, tensors: Sequence[TensorInfo]) -> None:
    screen.line(f"{counted(len(tensors), 'tensor')}, {size_text(sum(tensor.raw_bytes for tensor in tensors))}")
    rows = [
        (
            printable(tensor.name),
            tensor.dtype,
            shape_text(tensor.shape),
            tensor.kind,
            size_text(tensor.raw_bytes),
            str(tensor.slices),
        )
        for tensor in tensors
    ]
    screen.table(("NAME", "DTYPE", "SHAPE", "KIND", "SIZE", "SLICES"), rows, right=("SIZE", "SLICES"))
