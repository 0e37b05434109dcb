"""`rebuild`: makes the catalogue again from the bucket, and lets retention go on afterwards."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Final

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn

from shardkeep_service.access.scopes import Scope
from shardkeep_service.access.service import create_token
from shardkeep_service.blob_store.errors import BlobStoreError
from shardkeep_service.catalogue.owner import BucketRefused
from shardkeep_service.catalogue.rebuilding.rebuild import Progress, RebuildRefused, rebuild
from shardkeep_service.catalogue.rebuilding.report import RebuildReport
from shardkeep_service.catalogue.state import resume_retention
from shardkeep_service.cli.exits import ExitCode, refuse
from shardkeep_service.database.data_directory import DataDirectoryRefused, owned_directory
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.database.migrate import MigrationRefused, prepare_schema
from shardkeep_service.main import create_context
from shardkeep_service.observability.logs import configure_logs
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings

_PROBLEMS_SHOWN: Final = 20
_TOKEN_NAME: Final = "after a rebuild"  # noqa: S105  (a name)


def run_rebuild(settings: Settings, *, add: bool, as_json: bool) -> None:
    """Rebuilds and prints what came back; ends the command with FOUND when something is missing or damaged."""
    configure_logs("WARNING", secrets=settings.secrets)
    with _stopped_service(settings) as context:
        with _shown_progress() as progress:
            report = rebuild(context, add=add, progress=progress)
        token = _new_token(context)
    if as_json:
        typer.echo(json.dumps({**report.as_json(), "admin_token": token}))
    else:
        _print(report, token)
    if report.problem_count:
        raise typer.Exit(ExitCode.FOUND)


def run_resume_retention(settings: Settings) -> None:
    """Lets retention delete again; may be run beside the service."""
    with _translated_refusals():
        context = create_context(settings, application="rebuild")
        prepare_schema(context.database, migrate=settings.migrates_at_start)
        with context.database.write() as session:
            was_paused = resume_retention(session)
        context.pools.close()
        context.database.close()
    typer.echo("retention goes on" if was_paused else "retention was not paused")


@contextlib.contextmanager
def _stopped_service(settings: Settings) -> Iterator[ServiceContext]:
    """The context of a service that does not run; an embedded one is kept from starting meanwhile."""
    with _translated_refusals():
        lock = owned_directory(settings.data_dir) if settings.is_embedded else contextlib.nullcontext()
        with lock:
            context = create_context(settings, application="rebuild")
            prepare_schema(context.database, migrate=settings.migrates_at_start)
            try:
                yield context
            finally:
                context.pools.close()
                context.database.close()


@contextlib.contextmanager
def _translated_refusals() -> Iterator[None]:
    try:
        yield
    except (
        RebuildRefused, BucketRefused, DataDirectoryRefused, MigrationRefused, DatabaseFailed, BlobStoreError,
    ) as error:  # fmt: skip
        refuse(str(error))


@contextlib.contextmanager
def _shown_progress() -> Iterator[Progress]:
    """On a terminal a line that moves, on standard error; nothing elsewhere."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("listing the bucket")
        yield Progress(
            listed=lambda objects: bar.update(task, description=f"listing the bucket: {objects} objects"),
            project=lambda done, of: bar.update(task, description=f"restoring project {min(done + 1, of)} of {of}"),
        )


def _new_token(context: ServiceContext) -> str:
    with context.database.write() as session:
        _, text = create_token(session, now=context.database.now(session), scope=Scope.ADMIN, name=_TOKEN_NAME)
    return text


def _print(report: RebuildReport, token: str) -> None:
    lines = [
        f"{report.objects} objects in the bucket",
        (
            f"restored: {report.projects} projects, {report.runs} runs, {report.attempts} attempts,"
            f" {report.checkpoints} checkpoints, {report.chunks} chunks"
        ),
    ]
    if report.changed:
        lines.append(f"brought up to date: {report.changed} checkpoints")
    if report.unconfirmed:
        lines.append(
            f"unconfirmed: {len(report.unconfirmed)} checkpoints are whole and have no record of a commit; none is ever"
            " the latest; `shardkeep accept` takes one: " + ", ".join(report.unconfirmed)
        )
    if report.incomplete:
        lines.append(f"left to collection: {report.incomplete} saves that never became whole")
    lines.extend(f"problem: {problem.what}: {problem.detail}" for problem in report.problems[:_PROBLEMS_SHOWN])
    if report.problem_count > _PROBLEMS_SHOWN:
        lines.append(f"and {report.problem_count - _PROBLEMS_SHOWN} more problems; --json names up to 1000")
    lines.append("retention is paused; `shardkeep-service resume-retention` lets it go on")
    lines.append("chunks are read again by the scrub; until then only the run that stored one reuses it")
    for line in lines:
        typer.echo(line)
    typer.echo("tokens are not in the bucket; a new admin token, not shown again, is the last line", err=True)
    typer.echo(token)
