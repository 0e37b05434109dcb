"""How a command ends."""

from __future__ import annotations

import enum
from typing import NoReturn

import typer

from shardkeep_service.observability.redaction import redact


class ExitCode(enum.IntEnum):
    """Exit codes of every command."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    FOUND = 3


def refuse(reason: str) -> NoReturn:
    """Ends the command with the reason on standard error."""
    typer.echo(f"shardkeep-service: {redact(reason)}", err=True)
    raise typer.Exit(ExitCode.REFUSED)
