"""Global options, usage errors and exit codes; no service is asked."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from shardkeep.cli.application import hoist_global_options
from shardkeep.cli.exit_codes import ExitCode, exit_code_of
from shardkeep.cli.main import main
from shardkeep.errors import (
    AttemptFenced,
    CheckpointNotCommitted,
    ConfigurationError,
    ConnectionFailed,
    IntegrityError,
    SaveFailed,
    ServiceUnavailable,
    ShardkeepError,
    Unauthenticated,
)


@pytest.fixture(autouse=True)
def _no_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SHARDKEEP_URL", "SHARDKEEP_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SHARDKEEP_HOME", str(tmp_path))


def test_global_options_may_stand_anywhere() -> None:
    assert hoist_global_options(["ls", "p/r", "--json", "--url", "u", "--token=t"]) == [
        "--json", "--url", "u", "--token=t", "ls", "p/r",
    ]  # fmt: skip
    assert hoist_global_options(["pull", "--", "--json"]) == ["pull", "--", "--json"]
    assert hoist_global_options(["ls", "--url"]) == ["--url", "ls"]


def test_version_and_help_are_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("shardkeep ")
    assert main(["--version", "--json"]) == 0
    assert "version" in json.loads(capsys.readouterr().out)
    assert main(["pull", "--help"]) == 0
    assert "--max-shard-size" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["ls", "--limit", "0"],
        ["ls", "--bad-option"],
        ["ls", "--state", "open"],
        ["ls", "p/r", "--all", "--state", "open"],
        ["ls", "p/r/s"],
        ["ls", "caf\u00e9"],
        ["show"],
        ["show", "p"],
        ["show", "p/r", "--prefix", "x"],
        ["pull", "p/r", "out", "--max-shard-size", "big"],
        ["pull", "p/r", "out", "--strip-prefix"],
        ["push", "nowhere.safetensors", "p/r", "--step", "1"],
        ["push", "nowhere.safetensors", "p/r"],
        ["push", "nowhere.safetensors", "p", "--step", "1"],
        ["restore", "p/r"],
        ["ls"],
        ["ls", "--url", "ftp://x", "--token", "t"],
    ],
)
def test_what_cannot_work_is_a_usage_error_in_one_message(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.USAGE
    text = capsys.readouterr()
    assert text.out == ""
    assert text.err
    assert "Traceback" not in text.err


def test_with_json_a_usage_error_is_json_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--json", "--limit", "x"]) == ExitCode.USAGE
    text = capsys.readouterr()
    assert text.out == ""
    assert json.loads(text.err)["error"]["code"] == "usage"
    assert main(["ls", "--json"]) == ExitCode.USAGE
    error = json.loads(capsys.readouterr().err)["error"]
    assert (error["code"], error["exit_code"]) == ("configuration_error", 2)


def test_a_token_on_the_command_line_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "p", "--token", "secret-text"]) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert "SHARDKEEP_TOKEN" in err
    assert "secret-text" not in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), 2),
        (CheckpointNotCommitted("x", code="c", status=404), 3),
        (Unauthenticated("x", code="c", status=401), 4),
        (AttemptFenced("x", code="c", status=409), 4),
        (ConnectionFailed("x"), 5),
        (ServiceUnavailable("x", code="c", status=503), 5),
        (IntegrityError("x"), 1),
        (SaveFailed("x"), 1),
    ],
)
def test_exit_codes_by_error(error: ShardkeepError, code: int) -> None:
    assert exit_code_of(error) == code


def test_a_command_leaves_the_log_as_it_was() -> None:
    log = logging.getLogger("shardkeep")
    before = (list(log.handlers), log.propagate)
    main(["ls"])
    assert (list(log.handlers), log.propagate) == before


def test_the_command_line_works_without_torch(tmp_path: Path) -> None:
    script = (
        "import sys\nsys.modules['torch'] = None\nfrom shardkeep.cli.main import main\ncode = main(['--version'])\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
