"""`shardkeep token`: making tokens, tokens for jobs, listing and revoking them. A token's text is printed once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from shardkeep.cli.exit_codes import usage_error
from shardkeep.cli.human_text import age_text, parse_duration
from shardkeep.cli.invocation import Invocation
from shardkeep.cli.output import Screen
from shardkeep.protocol.identifiers import new_id, split_run_name
from shardkeep.protocol.messages import CreateJobToken, CreateToken, NewToken, TokenInfo, TokenScope

_EXPIRES: Final = "30d, 12h or 45m."
_DEFAULT_JOB: Final = "24h"
tokens = typer.Typer(help="Make, list and revoke tokens.", no_args_is_help=True)
Name = Annotated[str, typer.Option("--name", help="What it is for, to tell it apart in lists.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(tokens, name="token")


@tokens.command()
def create(
    context: typer.Context,
    *,
    scope: Annotated[TokenScope, typer.Option("--scope", help="metrics < read < write (saves too) < delete < admin.")],
    project: Annotated[
        list[str] | None,
        typer.Option("--project", help="A project it may see; may be repeated. Else: what yours sees."),
    ] = None,
    expires_in: Annotated[str | None, typer.Option("--expires-in", help=f"{_EXPIRES} Else: when yours does.")] = None,
    name: Name = "",
) -> None:
    """Make a token that reaches no further than yours. Its text is shown only here."""
    invocation: Invocation = context.obj
    message = CreateToken(
        id=new_id("tok"),
        name=name or f"{scope} token",
        scope=scope,
        projects=project or None,
        expires_in_seconds=None if expires_in is None else _seconds(expires_in),
    )
    _answer_new(invocation, invocation.access.create_token(message))


@tokens.command()
def job(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="The only run it may touch.")],
    *,
    read_only: Annotated[bool, typer.Option("--read-only", help="It may load and not save.")] = False,
    expires_in: Annotated[str, typer.Option("--expires-in", help=_EXPIRES)] = _DEFAULT_JOB,
    name: Name = "job",
) -> None:
    """Make a short-lived token for the jobs of one run: it saves and loads there, and deletes nothing."""
    invocation: Invocation = context.obj
    project, run_name = split_run_name(run)
    message = CreateJobToken(
        id=new_id("tok"),
        name=name,
        project=project,
        run=run_name,
        scope="read" if read_only else "write",
        expires_in_seconds=_seconds(expires_in),
    )
    _answer_new(invocation, invocation.access.mint_job_token(message))


@tokens.command(name="list")
def list_tokens(
    context: typer.Context,
    *,
    project: Annotated[str | None, typer.Option("--project", help="Only those that may see it.")] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also revoked and expired ones.")] = False,
) -> None:
    """List tokens, newest first."""
    invocation: Invocation = context.obj
    found = list(invocation.access.tokens(project=project, living=not everything))
    invocation.output.answer({"tokens": found}, show=lambda screen: _show(screen, found))


@tokens.command(name="self")
def show_self(context: typer.Context) -> None:
    """Show what the token in use may do."""
    invocation: Invocation = context.obj
    found = invocation.access.token()
    invocation.output.answer({"token": found}, show=lambda screen: _show(screen, [found]))


@tokens.command()
def revoke(context: typer.Context, token_id: Annotated[str, typer.Argument(metavar="TOKEN", help="tok_...")]) -> None:
    """Revoke a token and those it made for jobs, for good."""
    invocation: Invocation = context.obj
    found = invocation.access.revoke_token(token_id)
    invocation.output.answer({"token": found}, show=lambda screen: screen.line(f"{found.id} is revoked"))


def _answer_new(invocation: Invocation, made: NewToken) -> None:
    invocation.output.note(f"token {made.info.id}, {_reach(made.info)}; its text is not shown again")
    invocation.output.answer({"token": made.token, "info": made.info}, show=lambda screen: screen.line(made.token))


def _show(screen: Screen, found: Sequence[TokenInfo]) -> None:
    now = datetime.now(UTC)
    rows = [
        (
            info.id,
            f"{info.prefix}...",
            info.scope,
            _reach(info),
            _life(info),
            age_text(info.last_used_at, now),
            info.name,
        )
        for info in found
    ]
    screen.table(("ID", "TOKEN", "SCOPE", "REACH", "LIFE", "USED", "NAME"), rows)


def _reach(info: TokenInfo) -> str:
    if info.projects is None:
        return "all projects"
    return f"{info.projects[0]}/{info.run}" if info.run else ", ".join(info.projects)


def _life(info: TokenInfo) -> str:
    if info.revoked_at is not None:
        return "revoked"
    return "no end" if info.expires_at is None else f"until {info.expires_at:%Y-%m-%d %H:%M}"


def _seconds(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as exc:
        raise usage_error(str(exc)) from exc
