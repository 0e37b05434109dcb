"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from shardkeep_service.cli.exits import refuse
from shardkeep_service.settings import Settings

DataOption = Annotated[
    Path | None, typer.Option("--data", help="The data directory; default SHARDKEEP_SERVICE_DATA_DIR or ./data.")
]


def settings_with(**chosen: Any) -> Settings:
    """The settings of the environment, overridden by the options given; ends the command where they cannot work."""
    try:
        return Settings(**{name: value for name, value in chosen.items() if value is not None})
    except ValidationError as error:
        reasons = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'settings'}: {item['msg']}" for item in error.errors()
        )
        refuse(f"the settings cannot work: {reasons}")
