"""What FastAPI resolves before an endpoint runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from shardkeep_service.main import create_app
from shardkeep_service.settings import Settings


def test_no_dependency_of_a_route_goes_to_a_thread(tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path))
    calls = [call for route in app.routes if isinstance(route, APIRoute) for call in _calls(route.dependant)]
    assert len(calls) > 100
    assert {repr(call) for call in calls if not _is_async(call)} == set()


def _calls(dependant: Dependant) -> Iterator[object]:
    for dependency in dependant.dependencies:
        yield dependency.call
        yield from _calls(dependency)


def _is_async(call: object) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)
