"""`shardkeep-service`: the command line of the service.

Exit codes: 0 done; 1 refused, with the reason on standard error; 2 wrong usage; 3 a check found something.
"""

from __future__ import annotations

from typing import Annotated

import typer

from shardkeep_service.cli.migrate import migrate
from shardkeep_service.cli.options import DataOption, settings_with
from shardkeep_service.cli.tokens import tokens

app = typer.Typer(name="shardkeep-service", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(migrate)
app.add_typer(tokens, name="token")


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="The address to listen on; default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="0 takes a free port and prints it; default 8700.")] = None,
    data: DataOption = None,
) -> None:
    """Run the service until SIGTERM: migrates its database, then prints its URL on standard error."""
    from shardkeep_service.cli.serving import run_service

    run_service(settings_with(host=host, port=port, data_dir=data))


def main() -> None:
    """The entry point."""
    app()
