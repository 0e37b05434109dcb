"""`shardkeep pin`, `unpin`, `rm` and `restore`: keeping checkpoints and letting them go."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from shardkeep.cli.exit_codes import refusal, usage_error
from shardkeep.cli.human_text import printable, size_text
from shardkeep.cli.invocation import Invocation
from shardkeep.cli.references import REFERENCE_HELP, ById, find_checkpoint, parse_reference
from shardkeep.protocol.messages import CheckpointInfo, CheckpointState

Named = Annotated[str, typer.Argument(metavar="CHECKPOINT", help=REFERENCE_HELP)]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("pin")(pin)
    app.command("unpin")(unpin)
    app.command("rm")(rm)
    app.command("restore")(restore)


def pin(
    context: typer.Context,
    checkpoint: Named,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why it must stay.")] = "",
) -> None:
    """Keep a checkpoint whatever retention says, until it is unpinned."""
    invocation: Invocation = context.obj
    info = find_checkpoint(invocation.service, checkpoint, invocation.output)
    _answer(invocation, invocation.service.pin(info.id, info.version, reason=reason), "pinned")


def unpin(context: typer.Context, checkpoint: Named) -> None:
    """Leave a checkpoint to retention again."""
    invocation: Invocation = context.obj
    info = find_checkpoint(invocation.service, checkpoint, invocation.output)
    if not info.pinned:
        _answer(invocation, info, "was not pinned")
        return
    _answer(invocation, invocation.service.unpin(info.id, info.version), "unpinned")


def rm(
    context: typer.Context,
    checkpoint: Named,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a checkpoint. It can be restored until it is purged."""
    invocation: Invocation = context.obj
    if "/" in checkpoint and "@" not in checkpoint:
        raise usage_error(f"rm deletes one checkpoint, not a run: give an id, {checkpoint}@STEP or {checkpoint}@latest")
    info = find_checkpoint(invocation.service, checkpoint, invocation.output)
    if info.state is CheckpointState.DELETED:
        _answer(invocation, info, "was deleted before")
        return
    if not yes:
        _ask(invocation, info)
    deleted = invocation.service.delete(info.id, info.version)
    _answer(invocation, deleted, f"deleted; `shardkeep restore {info.id}` brings it back until it is purged")


def restore(context: typer.Context, checkpoint: Named) -> None:
    """Undo a delete."""
    invocation: Invocation = context.obj
    reference = parse_reference(checkpoint)
    if not isinstance(reference, ById) and reference.step is None:
        raise usage_error("a deleted checkpoint is never the latest: give its id or project/run@STEP")
    info = find_checkpoint(invocation.service, checkpoint, invocation.output, states=(CheckpointState.DELETED,))
    if info.state is CheckpointState.COMMITTED:
        _answer(invocation, info, "was not deleted")
        return
    _answer(invocation, invocation.service.restore(info.id, info.version), "restored")


def _ask(invocation: Invocation, info: CheckpointInfo) -> None:
    """Return if the person at the terminal says yes; refuse if there is none or the answer is another."""
    if invocation.output.as_json or not sys.stdin.isatty():
        raise refusal(f"{info.id} is not deleted: nobody can be asked here, give --yes", code="not_confirmed")
    metrics = " (pinned)" if info.pinned else ""
    question = (
        f"Delete {info.id}, step {info.step} of {info.project}/{info.run}, {size_text(info.raw_bytes)}{metrics}? "
        "It can be restored until it is purged. [y/N] "
    )
    sys.stderr.write(printable(question))
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise refusal(f"{info.id} is not deleted", code="not_confirmed")


def _answer(invocation: Invocation, info: CheckpointInfo, what: str) -> None:
    text = f"{info.id} (step {info.step} of {info.project}/{info.run}) {what}"
    invocation.output.answer({"checkpoint": info}, show=lambda screen: screen.line(text))
