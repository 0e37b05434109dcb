"""`shardkeep tag` and `untag`: words that people and retention policies find checkpoints by."""

from __future__ import annotations

from typing import Annotated

import typer

from shardkeep.cli.invocation import Invocation
from shardkeep.cli.references import REFERENCE_HELP, find_checkpoint
from shardkeep.protocol.messages import CheckpointInfo

Named = Annotated[str, typer.Argument(metavar="CHECKPOINT", help=REFERENCE_HELP)]
Tag = Annotated[str, typer.Argument(metavar="TAG", help="1 to 128 of A-Z a-z 0-9 . _ -")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("tag")(tag)
    app.command("untag")(untag)


def tag(
    context: typer.Context,
    checkpoint: Named,
    name: Tag,
    *,
    only: Annotated[bool, typer.Option("--only", help="Take the tag from the run's other checkpoints.")] = False,
) -> None:
    """Tag a checkpoint. A policy with that tag keeps it."""
    invocation: Invocation = context.obj
    info = find_checkpoint(invocation.service, checkpoint, invocation.output)
    _answer(invocation, invocation.keeping.tag(info.id, name, only=only))


def untag(context: typer.Context, checkpoint: Named, name: Tag) -> None:
    """Take a tag from a checkpoint."""
    invocation: Invocation = context.obj
    info = find_checkpoint(invocation.service, checkpoint, invocation.output)
    _answer(invocation, invocation.keeping.untag(info.id, name))


def _answer(invocation: Invocation, info: CheckpointInfo) -> None:
    tags = ", ".join(info.tags) or "no tags"
    text = f"{info.id} (step {info.step} of {info.project}/{info.run}) has {tags}"
    invocation.output.answer({"checkpoint": info}, show=lambda screen: screen.line(text))
