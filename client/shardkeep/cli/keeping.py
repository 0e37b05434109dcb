"""`shardkeep pin`, `unpin`, `rm`, `restore` and `accept`: keeping checkpoints and letting them go."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from shardkeep.cli.exit_codes import refusal, usage_error
from shardkeep.cli.human_text import printable, size_text
from shardkeep.cli.invocation import Invocation
from shardkeep.cli.references import REFERENCE_HELP, ById, find_checkpoint, parse_reference
from shardkeep.cli.run_deletion import (
    PROJECT_ID,
    RUN_ID,
    remove_project,
    remove_run,
    restore_project,
    restore_run,
)
from shardkeep.protocol.messages import CheckpointInfo, CheckpointState

Named = Annotated[str, typer.Argument(metavar="CHECKPOINT", help=REFERENCE_HELP)]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("pin")(pin)
    app.command("unpin")(unpin)
    app.command("rm")(rm)
    app.command("restore")(restore)
    app.command("accept")(accept)


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
    run: Annotated[bool, typer.Option("--run", help="Delete the whole run PROJECT/RUN.")] = False,
    project: Annotated[bool, typer.Option("--project", help="Delete the whole project PROJECT.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also a run that is being saved to, or has pinned checkpoints.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a checkpoint, or with --run or --project all of one. It can be restored until it is purged."""
    invocation: Invocation = context.obj
    if run and project:
        raise usage_error("give --run or --project, not both")
    if run or project:
        (remove_run if run else remove_project)(invocation, checkpoint, yes=yes, force=force)
        return
    if force:
        raise usage_error("--force goes with --run and --project; unpin a pinned checkpoint to delete it")
    if "/" in checkpoint and "@" not in checkpoint:
        raise usage_error(
            f"rm deletes one checkpoint: give an id, {checkpoint}@STEP or {checkpoint}@latest; the whole run is deleted"
            " by rm --run"
        )
    info = find_checkpoint(invocation.service, checkpoint, invocation.output)
    if info.state is CheckpointState.DELETED:
        _answer(invocation, info, "was deleted before")
        return
    if not yes:
        _ask(invocation, info)
    deleted = invocation.service.delete(info.id, info.version)
    if info.state is CheckpointState.UNCONFIRMED:
        _answer(invocation, deleted, "discarded")
        return
    _answer(invocation, deleted, f"deleted; `shardkeep restore {info.id}` brings it back until it is purged")


def restore(
    context: typer.Context,
    checkpoint: Named,
    *,
    run: Annotated[bool, typer.Option("--run", help="Restore the deleted run PROJECT/RUN.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="Restore a run or project under another name.")] = None,
) -> None:
    """Undo a delete of a checkpoint, or of a run or project by its id."""
    invocation: Invocation = context.obj
    if run or checkpoint.startswith(RUN_ID):
        restore_run(invocation, checkpoint, name=name)
        return
    if checkpoint.startswith(PROJECT_ID):
        restore_project(invocation, checkpoint, name=name)
        return
    if name is not None:
        raise usage_error("--name goes with a run or a project")
    reference = parse_reference(checkpoint)
    if not isinstance(reference, ById) and reference.step is None:
        raise usage_error("a deleted checkpoint is never the latest: give its id or project/run@STEP")
    info = find_checkpoint(invocation.service, checkpoint, invocation.output, states=(CheckpointState.DELETED,))
    if info.state is CheckpointState.COMMITTED:
        _answer(invocation, info, "was not deleted")
        return
    _answer(invocation, invocation.service.restore(info.id, info.version), "restored")


def accept(context: typer.Context, checkpoint: Named) -> None:
    """Commit a checkpoint that a rebuild of the catalogue found whole; `rm` discards it."""
    invocation: Invocation = context.obj
    reference = parse_reference(checkpoint)
    if not isinstance(reference, ById) and reference.step is None:
        raise usage_error("an unconfirmed checkpoint is never the latest: give its id or project/run@STEP")
    states = (CheckpointState.UNCONFIRMED, CheckpointState.COMMITTED)
    info = find_checkpoint(invocation.service, checkpoint, invocation.output, states=states)
    if info.state is CheckpointState.COMMITTED:
        _answer(invocation, info, "was committed already")
        return
    _answer(invocation, invocation.service.accept(info.id, info.version), "accepted: it is committed")


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
