"""The command line: tokens without a running service, refusals with their reason and exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shardkeep_service.access.secrets import is_token_text
from shardkeep_service.cli.main import app
from shardkeep_service.database.migrate import head_revision


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_token_is_printed_last_and_listed_without_its_text(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    made = run("token", "create", "--data", data, "--scope", "write", "--project", "team", "--name", "ci")
    assert made.exit_code == 0, made.output
    text = made.stdout.splitlines()[-1]
    assert is_token_text(text)
    (line,) = run("token", "list", "--data", data, "--json").stdout.splitlines()
    listed = json.loads(line)
    assert (listed["scope"], listed["project"], listed["name"]) == ("write", "team", "ci")
    assert text not in line
    assert text.startswith(listed["prefix"])


def test_revoking_is_repeatable_and_an_unknown_token_is_refused(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    run("token", "create", "--data", data, "--scope", "read")
    token_id = json.loads(run("token", "list", "--data", data, "--json").stdout)["id"]
    assert [run("token", "revoke", token_id, "--data", data).exit_code for _ in range(2)] == [0, 0]
    unknown = run("token", "revoke", "tok_" + "0" * 32, "--data", data)
    assert unknown.exit_code == 1
    assert "there is no token" in unknown.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (("--scope", "owner"), 2),
        (("--scope", "read", "--expires-in", "soon"), 2),
        (("--scope", "read", "--expires-in", "0d"), 2),
        (("--scope", "read", "--project", "../x"), 1),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, arguments: tuple[str, ...], exit_code: int) -> None:
    assert run("token", "create", "--data", str(tmp_path), *arguments).exit_code == exit_code


def test_migrations_and_models_agree() -> None:
    checked = run("migrate", "--check")
    assert checked.exit_code == 0, checked.output


def test_migrate_prints_the_revision(tmp_path: Path) -> None:
    assert run("migrate", "--data", str(tmp_path / "data")).stdout.strip() == head_revision()
