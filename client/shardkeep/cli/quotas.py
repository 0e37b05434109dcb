"""`shardkeep quota`: what a project may use, and what it uses."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from shardkeep.cli.exit_codes import usage_error
from shardkeep.cli.human_text import parse_size, size_text
from shardkeep.cli.invocation import Invocation
from shardkeep.cli.output import Screen
from shardkeep.protocol.messages import QuotaInfo, SetQuota

_NONE: Final = "none"
quotas = typer.Typer(help="Show and set what a project may use.", no_args_is_help=True)
Project = Annotated[str, typer.Argument(metavar="PROJECT")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(quotas, name="quota")


@quotas.command()
def show(context: typer.Context, project: Project) -> None:
    """Show what a project may use, and what it uses."""
    invocation: Invocation = context.obj
    _answer(invocation, invocation.access.quota(project))


@quotas.command(name="set")
def set_quota(
    context: typer.Context,
    project: Project,
    *,
    max_bytes: Annotated[str | None, typer.Option("--bytes", help="10TB, 512GiB, or none.")] = None,
    max_checkpoints: Annotated[str | None, typer.Option("--checkpoints", help="A number, or none.")] = None,
) -> None:
    """Set limits of a project; one that is not given stays. What is stored already stays too."""
    invocation: Invocation = context.obj
    if max_bytes is None and max_checkpoints is None:
        raise usage_error("give --bytes, --checkpoints or both")
    present = invocation.access.quota(project)
    message = SetQuota(
        max_bytes=present.max_bytes if max_bytes is None else _bytes(max_bytes),
        max_checkpoints=present.max_checkpoints if max_checkpoints is None else _count(max_checkpoints),
    )
    _answer(invocation, invocation.access.set_quota(project, message))


def _answer(invocation: Invocation, info: QuotaInfo) -> None:
    invocation.output.answer({"quota": info}, show=lambda screen: _show(screen, info))


def _show(screen: Screen, info: QuotaInfo) -> None:
    limit = "no limit" if info.max_bytes is None else size_text(info.max_bytes)
    checkpoints = "no limit" if info.max_checkpoints is None else str(info.max_checkpoints)
    screen.fields(
        [
            ("project", info.project),
            ("bytes", f"{size_text(info.used_bytes)} of {limit}"),
            ("checkpoints", f"{info.used_checkpoints} of {checkpoints}"),
        ]
    )


def _bytes(text: str) -> int | None:
    if text == _NONE:
        return None
    try:
        return parse_size(text)
    except ValueError as exc:
        raise usage_error(str(exc)) from exc


def _count(text: str) -> int | None:
    if text == _NONE:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise usage_error(f"{text!r} is no number of checkpoints; write one, or none")
    return int(text)
