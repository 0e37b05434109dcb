"""What the code has that deployment files name: settings, commands, routes, metrics, versions."""

from __future__ import annotations

import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

import typer
from pydantic import BaseModel
from pydantic_settings import BaseSettings
from starlette.routing import Route
from typer.core import TyperCommand, TyperGroup

from shardkeep_service.cli.main import app as cli
from shardkeep_service.main import create_app
from shardkeep_service.observability.metrics import Metrics
from shardkeep_service.settings import ENVIRONMENT_PREFIX, Settings

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the checks compare with."""

    version: str
    settings: frozenset[str]
    """Environment variables of the service."""
    commands: dict[str, frozenset[str]]
    """Options by command, groups joined with their commands: `token create`."""
    routes: frozenset[str]
    metrics: dict[str, frozenset[str]]
    """Labels by the name of each series."""


def facts_of_the_code() -> Facts:
    return Facts(
        version=PROJECT["version"],
        settings=frozenset(environment_of(Settings)),
        commands=dict(_commands(typer.main.get_command(cli), "")),
        routes=_routes(),
        metrics=_series(),
    )


def environment_of(settings: type[BaseModel], prefix: str = ENVIRONMENT_PREFIX) -> list[str]:
    """The variables that a settings class reads, those of nested classes included."""
    found = []
    for name, field in settings.model_fields.items():
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            own = nested.model_config.get("env_prefix", "") if issubclass(nested, BaseSettings) else ""
            found += environment_of(nested, own or f"{prefix}{name.upper()}_")
        else:
            found.append(f"{prefix}{name.upper()}")
    return found


def _commands(command: object, path: str) -> list[tuple[str, frozenset[str]]]:
    if isinstance(command, TyperGroup):
        inner = command.commands.items()
        return [found for name, one in inner for found in _commands(one, f"{path} {name}".strip())]
    assert isinstance(command, TyperCommand)
    return [(path, frozenset(option for parameter in command.params for option in parameter.opts))]


def _routes() -> frozenset[str]:
    with tempfile.TemporaryDirectory() as directory:
        app = create_app(Settings(data_dir=Path(directory)))
        found = frozenset(route.path for route in app.routes if isinstance(route, Route))
        app.state.context.database.close()
    return found


def _series() -> dict[str, frozenset[str]]:
    """A histogram `x_seconds` has the series `x_seconds_bucket` (with `le`), `x_seconds_sum` and `x_seconds_count`."""
    found: dict[str, frozenset[str]] = {}
    for family in vars(Metrics()).values():
        name, labels = getattr(family, "_name", None), getattr(family, "_labelnames", ())
        if name is None:
            continue
        bare = frozenset(labels)
        found |= {name: bare, f"{name}_total": bare, f"{name}_sum": bare, f"{name}_count": bare}
        found[f"{name}_bucket"] = bare | {"le"}
    return found
