"""`shardkeep verify`: is every stored byte of a checkpoint what was saved?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shardkeep.cli.exit_codes import ExitCode
from shardkeep.cli.human_text import counted, region_text, size_text
from shardkeep.cli.invocation import Invocation
from shardkeep.cli.output import Screen
from shardkeep.cli.references import REFERENCE_HELP, find_checkpoint
from shardkeep.cli.verification import Damage, Verification, Verifier, report_damage
from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import CheckpointNotCommitted, ServiceError
from shardkeep.format.names import plain_text
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointInfo, CheckpointState


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify")(verify)


def verify(
    context: typer.Context, checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help=REFERENCE_HELP)]
) -> None:
    """Read every chunk again: check its digest, and decode every segment against its fingerprint.

    Damage is named by tensor, region, rank and chunk, and reported to the service; then the exit code is 1.
    """
    invocation: Invocation = context.obj
    info = find_checkpoint(invocation.service, checkpoint, invocation.output)
    if info.state is not CheckpointState.COMMITTED:
        raise CheckpointNotCommitted(
            f"{info.id} is {info.state.value}: only a committed checkpoint can be verified",
            code=ErrorCode.CHECKPOINT_NOT_COMMITTED,
            status=404,
        )
    service = invocation.transfer_client().service
    with invocation.output.progress(f"verifying {info.id}", info.stored_bytes or 0) as advance:
        found = Verifier(service, info, advance).run()
    reported = _report(invocation, service, info, found)
    document = _document(info, found, reported=reported)
    invocation.output.answer(document, show=lambda screen: _show(screen, info, found, reported=reported))
    if found.damage:
        raise typer.Exit(ExitCode.FAILED)


def _report(invocation: Invocation, service: ServiceClient, info: CheckpointInfo, found: Verification) -> bool:
    digests = found.damaged_chunks()
    if not digests:
        return False
    try:
        report_damage(service, info.id, digests)
    except ServiceError as error:
        invocation.output.note(f"the damage was not reported to the service: {error}")
        return False
    return True


def _document(info: CheckpointInfo, found: Verification, *, reported: bool) -> dict[str, Any]:
    return {
        "checkpoint_id": info.id,
        "intact": not found.damage,
        "ranks": found.ranks,
        "chunks": found.chunks,
        "stored_bytes": found.stored_bytes,
        "segments": found.segments,
        "damage": [_damage_document(item) for item in found.damage],
        "reported": reported,
    }


def _damage_document(item: Damage) -> dict[str, Any]:
    return {
        "tensor": item.tensor,
        "regions": [{"offsets": offsets, "sizes": sizes} for offsets, sizes in item.regions],
        "rank": item.rank,
        "chunk": item.chunk,
        "detail": item.detail,
    }


def _show(screen: Screen, info: CheckpointInfo, found: Verification, *, reported: bool) -> None:
    read = (
        f"{counted(found.chunks, 'chunk')} ({size_text(found.stored_bytes)}) and {counted(found.segments, 'segment')} "
        f"of {counted(found.ranks, 'rank')}"
    )
    if not found.damage:
        screen.line(f"{info.id} (step {info.step}) is intact: {read} checked")
        return
    screen.line(f"{info.id} (step {info.step}) is DAMAGED: {len(found.damage)} of {read} do not match")
    for item in found.damage:
        screen.line(f"  {_place(item)}")
        screen.line(f"    {item.detail}")
    if reported:
        screen.line("The damage was reported to the service, which reads these chunks again itself.")
    screen.line(f"Earlier checkpoints: shardkeep ls {info.project}/{info.run}")


def _place(item: Damage) -> str:
    if item.tensor is None:
        return f"rank {item.rank}, chunk {item.chunk}" if item.chunk else f"rank {item.rank}"
    regions = " and ".join(region_text(offsets, sizes) for offsets, sizes in item.regions)
    return f"tensor {plain_text(item.tensor)} {regions}, rank {item.rank}, chunk {item.chunk}"
