"""`shardkeep-service`: the command line of the service.

Exit codes: 0 done; 1 refused, with the reason on standard error; 2 wrong usage; 3 a check found something.
"""

from __future__ import annotations

from typing import Annotated

import typer

from shardkeep_service.cli.doctor import doctor
from shardkeep_service.cli.gc import gc
from shardkeep_service.cli.migrate import migrate
from shardkeep_service.cli.options import DataOption, settings_with
from shardkeep_service.cli.tokens import tokens

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(name="shardkeep-service", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(migrate)
app.command()(doctor)
app.command()(gc)
app.add_typer(tokens, name="token")


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="The address to listen on; default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="0 takes a free port and prints it; default 8700.")] = None,
    data: DataOption = None,
) -> None:
    """Run the service until SIGTERM; prints its URL on standard error.

    Embedded, with SQLite, it migrates its database first. With PostgreSQL it is one of any number of replicas: run
    `migrate` once before, and `worker` beside them.
    """
    from shardkeep_service.cli.serving import run_service

    run_service(settings_with(host=host, port=port, data_dir=data))


@app.command()
def worker(data: DataOption = None) -> None:
    """Run the background work beside PostgreSQL until SIGTERM: expiry, retention, collection, scrub, commit records.

    Any number may run: each task is run by one of them at a time. Killing one at any moment loses nothing.
    """
    from shardkeep_service.cli.worker import run_worker

    run_worker(settings_with(data_dir=data))


@app.command()
def rebuild(
    data: DataOption = None,
    add: Annotated[
        bool, typer.Option("--add", help="The database is a restored backup: add what the bucket has beyond it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make the catalogue again from the bucket alone. Stop every service and worker first.

    The database must be empty, or a restored backup (--add). Prints what came back, what is missing, and a new admin
    token. Exit 3 when something is missing or damaged. Interrupted, run it again.
    """
    from shardkeep_service.cli.rebuild import run_rebuild

    run_rebuild(settings_with(data_dir=data), add=add, as_json=as_json)


@app.command()
def resume_retention(data: DataOption = None) -> None:
    """Let retention delete again after a rebuild paused it."""
    from shardkeep_service.cli.rebuild import run_resume_retention

    run_resume_retention(settings_with(data_dir=data))


@app.command()
def scrub(
    data: DataOption = None,
    project: Annotated[str | None, typer.Option(help="Only this project.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what was read within the scrub's interval already.")
    ] = False,
    rate: Annotated[
        int, typer.Option(min=0, help="Bytes a second; 0 is as fast as can be. The worker's is a setting.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Read stored objects again and compare their digests: what is declared, then what was read longest ago.

    Quarantines what is damaged and names it. Exit 3 when something is. Interrupted, it goes on where it was.
    """
    from shardkeep_service.cli.scrub import run_scrub

    run_scrub(settings_with(data_dir=data), project=project, everything=everything, rate=rate, as_json=as_json)


@app.command()
def openapi() -> None:
    """Print the OpenAPI description of this version; docs/openapi.json is a copy of it."""
    from shardkeep_service.cli.openapi import print_openapi

    print_openapi()


def main() -> None:
    """The entry point."""
    app()
