"""Commands that the dashboard tells people to run are commands that there are, with options that they take."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.service_process import ServiceProcess
from tests.warm_process import Program, run_program

SOURCE: Final = Path(__file__).parents[3] / "service" / "dashboard" / "src"
PROGRAMS: Final[dict[str, Program]] = {"shardkeep": "shardkeep", "shardkeep-service": "shardkeep-service"}
PATHS: Final = ("model.safetensors", "./weights")
"""What stands for a path in them."""
WRONG_USAGE: Final = 2
_NAMED: Final = re.compile(r"""(?:command|text)=(?:"([^"]+)"|\{`([^`]+)`\})""")
_WORDS: Final = {"scope": "read", "checkpoint.id": "ckp_" + "0" * 32, "place": "demo/run"}
"""What stands for `${...}` where it is not a project and a run."""


def named_commands() -> Iterator[tuple[str, str]]:
    """Each command by the file that names it."""
    for path in sorted(SOURCE.rglob("*.tsx")):
        for plain, template in _NAMED.findall(path.read_text()):
            text = plain or re.sub(r"\$\{([^}]+)\}", filled_in, template)
            if text.split()[0] in PROGRAMS:
                yield str(path.relative_to(SOURCE)), text


def filled_in(match: re.Match[str]) -> str:
    inner = match[1]
    return _WORDS.get(inner, "demo/run" if "Text(" in inner else "demo")


@pytest.mark.parametrize(("path", "text"), list(named_commands()))
def test_a_command_that_the_dashboard_names_is_no_wrong_usage(
    path: str, text: str, shared_service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may find that there is no such run."""
    monkeypatch.setenv("SHARDKEEP_URL", shared_service.url)
    monkeypatch.setenv("SHARDKEEP_TOKEN", shared_service.token)
    monkeypatch.setenv("SHARDKEEP_SERVICE_DATA_DIR", str(tmp_path / "data"))
    save_file({"weight": np.ones(4, np.float32)}, tmp_path / "model.safetensors")
    program, *words = shlex.split(text)
    words = [str(tmp_path / "model.safetensors") if word in PATHS else word for word in words]
    done = run_program(PROGRAMS[program], *words, env=os.environ)
    assert done.returncode != WRONG_USAGE, f"{path} names `{text}`: {done.stderr}"


def test_commands_are_found() -> None:
    assert len(list(named_commands())) > 8
