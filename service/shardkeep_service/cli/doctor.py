"""`doctor`: tries out everything a service stands on, and says what to do about what is not as it should be."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from shardkeep_service.blob_store.findings import Finding, Level
from shardkeep_service.cli.exits import ExitCode
from shardkeep_service.cli.options import DataOption, settings_with

_COLOURS: Final = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def doctor(
    data: DataOption = None, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Examine database, object store, catalogue, records and settings. Exit 1 when something fails.

    Writes a few small objects and removes them; may run beside a running service.
    """
    from shardkeep_service.integrity.examination import examine
    from shardkeep_service.main import create_context
    from shardkeep_service.observability.logs import configure_logs

    settings = settings_with(data_dir=data)
    configure_logs("ERROR", secrets=settings.secrets)
    context = create_context(settings, application="doctor")
    try:
        found = examine(context)
    finally:
        context.pools.close()
        context.database.close()
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found]))
    else:
        _print(found)
    if any(finding.level is Level.FAIL for finding in found):
        raise typer.Exit(ExitCode.REFUSED)


def _print(found: list[Finding]) -> None:
    """A table on a terminal, elsewhere a line each."""
    console = Console()
    if not console.is_terminal:
        for finding in found:
            advice = f"; {finding.advice}" if finding.advice else ""
            typer.echo(f"{finding.level.value:4}  {finding.name:16}  {finding.detail}{advice}")
        return
    table = Table("", "what", "found", "what to do", box=None, pad_edge=False)
    for finding in found:
        level = f"[{_COLOURS[finding.level]}]{finding.level.value}[/]"
        table.add_row(level, finding.name, finding.detail, finding.advice)
    console.print(table)
