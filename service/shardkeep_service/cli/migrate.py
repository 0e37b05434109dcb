"""`migrate`: brings the database to this version's schema, or checks that migrations and models agree."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from shardkeep_service.cli.exits import ExitCode, refuse
from shardkeep_service.cli.options import DataOption, settings_with
from shardkeep_service.database.data_directory import DataDirectoryRefused, owned_directory
from shardkeep_service.database.database import Database
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.database.migrate import MigrationRefused, current_revision, drift, head_revision, upgrade
from shardkeep_service.database.open_database import COMMAND_CONNECTIONS, open_database
from shardkeep_service.settings import Settings


def migrate(
    data: DataOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare the history with the models, on a scratch database.")
    ] = False,
) -> None:
    """Migrate the database; with --check touch nothing and exit 3 when a migration is missing.

    Replicas of the version before may go on running. Several at once are fine: one migrates, the others wait for it.
    """
    try:
        if check:
            _check()
        else:
            typer.echo(_migrate(settings_with(data_dir=data)))
    except (DataDirectoryRefused, MigrationRefused, DatabaseFailed) as error:
        refuse(str(error))


def _migrate(settings: Settings) -> str:
    if settings.is_embedded:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = open_database(settings, application="migrate", connections=COMMAND_CONNECTIONS)
    try:
        if settings.is_embedded and current_revision(database) != head_revision():
            with owned_directory(settings.data_dir):  # an embedded service of the old version must not run meanwhile
                return upgrade(database)
        return upgrade(database)
    finally:
        database.close()


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
