"""The command line against the service that a module shares."""

from __future__ import annotations

import pytest

from tests.integration.cli.command_line import NO_TORCH, CommandLine
from tests.service_process import ServiceProcess


@pytest.fixture(scope="module")
def shardkeep(shared_service: ServiceProcess, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    no_torch = tmp_path_factory.mktemp("no-torch")
    (no_torch / "sitecustomize.py").write_text(NO_TORCH)
    return CommandLine(shared_service, no_torch)
