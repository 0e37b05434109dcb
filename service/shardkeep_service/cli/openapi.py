"""`openapi`: the description of the routes, without a running service."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer

from shardkeep_service.main import create_app
from shardkeep_service.openapi_document import document_text
from shardkeep_service.settings import Settings


def print_openapi() -> None:
    """Prints the document as it lies in the repository."""
    with tempfile.TemporaryDirectory() as directory:
        typer.echo(document_text(create_app(Settings(data_dir=Path(directory), database_url=None))), nl=False)
