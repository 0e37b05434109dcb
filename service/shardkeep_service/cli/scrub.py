"""`scrub`: reads stored objects again now, beside a running service or without one."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from sqlalchemy.orm import Session

from shardkeep_service.blob_store.errors import BlobStoreError
from shardkeep_service.cli.exits import ExitCode, refuse
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.database.migrate import MigrationRefused, prepare_schema
from shardkeep_service.integrity.scrub import Scope, Scrub, ScrubReport
from shardkeep_service.main import create_context
from shardkeep_service.moments import micros
from shardkeep_service.observability.logs import configure_logs
from shardkeep_service.projects.repository import project_named
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from shardkeep_service.worker.loop import Turn


def run_scrub(settings: Settings, *, project: str | None, everything: bool, rate: int, as_json: bool) -> None:
    """Reads and prints what was found; ends the command with FOUND when something is damaged or was not read."""
    configure_logs("WARNING", secrets=settings.secrets)
    try:
        context = create_context(settings, application="scrub")
        prepare_schema(context.database, migrate=settings.migrates_at_start)
        report = _scrub(context, _scope(context, project, everything=everything), rate)
    except (DatabaseFailed, MigrationRefused, BlobStoreError) as error:
        refuse(str(error))
    context.pools.close()
    context.database.close()
    _print(report, as_json=as_json)
    if report.damaged or report.quarantined or report.unread:
        raise typer.Exit(ExitCode.FOUND)


def _scrub(context: ServiceContext, scope: Scope, rate: int) -> ScrubReport:
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading")

        def show(report: ScrubReport) -> None:
            bar.update(task, description=f"{report.bytes_read / 1e9:.2f} GB in {report.chunks} chunks")

        return Scrub(context, scope, Turn(), bytes_per_second=rate, on_progress=show).run()


def _scope(context: ServiceContext, project: str | None, *, everything: bool) -> Scope:
    with context.database.read() as session:
        now = context.database.now(session)
        before = now if everything else now - micros(context.settings.scrub_interval_seconds)
        return Scope(before, None if project is None else _project_id(session, project))


def _project_id(session: Session, name: str) -> str:
    found = project_named(session, name)
    if found is None:
        refuse(f"there is no project {name!r}")
    return found.id


def _print(report: ScrubReport, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(report)))
        return
    typer.echo(
        f"read {report.bytes_read} bytes in {report.chunks} chunks and the objects of {report.checkpoints} checkpoints"
    )
    for key in report.damaged:
        typer.echo(f"damaged: {key}")
    for key in report.repaired:
        typer.echo(f"damaged and made again: {key}")
    for checkpoint_id in report.quarantined:
        typer.echo(f"quarantined: {checkpoint_id}")
    if report.unread:
        typer.echo(f"not read: {report.unread} objects that the store did not give; run it again")
