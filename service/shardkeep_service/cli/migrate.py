"""`migrate`: brings the database to this version's schema, or checks that migrations and models agree."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from shardkeep_service.cli.exits import ExitCode, refuse
from shardkeep_service.cli.options import DataOption, settings_with
from shardkeep_service.database.database import Database
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.database.migrate import MigrationRefused, drift, upgrade


def migrate(
    data: DataOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare the history with the models, on a scratch database.")
    ] = False,
) -> None:
    """Migrate the database; with --check touch nothing and exit 3 when a migration is missing."""
    try:
        if check:
            _check()
            return
        settings = settings_with(data_dir=data)
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        database = Database(settings.resolved_database_url)
        typer.echo(upgrade(database))
        database.close()
    except (MigrationRefused, DatabaseFailed) as error:
        refuse(str(error))


def _check() -> None:
    with tempfile.TemporaryDirectory() as directory:
        database = Database(f"sqlite:///{Path(directory) / 'scratch.db'}")
        upgrade(database)
        differences = drift(database)
        database.close()
    for difference in differences:
        typer.echo(str(difference), err=True)
    if differences:
        raise typer.Exit(ExitCode.FOUND)
    typer.echo("the migrations give the schema of the models")
