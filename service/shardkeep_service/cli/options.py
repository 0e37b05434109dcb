"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shardkeep_service.settings import Settings

DataOption = Annotated[
    Path | None, typer.Option("--data", help="The data directory; default SHARDKEEP_SERVICE_DATA_DIR or ./data.")
]


def settings_with(**chosen: Any) -> Settings:
    """The settings of the environment, overridden by the options that were given."""
    return Settings(**{name: value for name, value in chosen.items() if value is not None})
