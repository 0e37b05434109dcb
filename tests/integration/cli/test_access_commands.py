"""Tokens, quotas and the audit log from the command line."""

from __future__ import annotations

import numpy as np
import pytest

from shardkeep.errors import QuotaExceeded, ShardkeepError
from shardkeep.protocol.messages import CheckpointState
from tests.integration.cli.command_line import CommandLine, save, whole


@pytest.fixture(scope="module")
def run(shardkeep: CommandLine) -> str:
    with shardkeep.client() as client:
        assert save(client, "access/run", 1, [[whole("w", np.ones(8))]]).state is CheckpointState.COMMITTED
    return "access/run"


def test_a_token_is_printed_alone_and_works_until_it_is_revoked(shardkeep: CommandLine, run: str) -> None:
    made = shardkeep.ok("token", "create", "--scope", "read", "--project", "access", "--expires-in", "1h")
    text = made.out.strip()
    assert text.startswith("shardkeep_")
    assert "not shown again" in made.err
    assert shardkeep("ls", run, env={"SHARDKEEP_TOKEN": text}).code == 0
    mine = shardkeep("token", "self", "--json", env={"SHARDKEEP_TOKEN": text}).document["token"]
    assert (mine["scope"], mine["projects"]) == ("read", ["access"])
    assert shardkeep.ok("token", "revoke", mine["id"]).out.strip() == f"{mine['id']} is revoked"
    refused = shardkeep("ls", run, "--json", env={"SHARDKEEP_TOKEN": text})
    assert (refused.code, refused.error["code"]) == (4, "token_invalid")


def test_a_jobs_token_is_made_for_one_run(shardkeep: CommandLine, run: str) -> None:
    made = shardkeep.ok("token", "job", run, "--read-only", "--expires-in", "2h", "--json").document
    info = made["info"]
    assert (info["scope"], info["projects"], info["run"]) == ("read", ["access"], "run")
    refused = shardkeep("rm", f"{run}@latest", "--yes", "--json", env={"SHARDKEEP_TOKEN": made["token"]})
    assert (refused.code, refused.error["code"]) == (4, "scope_too_narrow")


def test_tokens_are_listed_without_their_texts(shardkeep: CommandLine, run: str) -> None:
    text = shardkeep.ok("token", "create", "--scope", "metrics", "--name", "prometheus").out.strip()
    for arguments in (
        ("token", "list"),
        ("token", "list", "--all", "--json"),
        ("token", "list", "--project", "access"),
    ):
        done = shardkeep.ok(*arguments)
        assert text not in done.out
        assert "prometheus" in done.out


def test_a_quota_is_set_shown_and_lifted(shardkeep: CommandLine, run: str) -> None:
    assert "no limit" in shardkeep.ok("quota", "show", "access").out
    shardkeep.ok("quota", "set", "access", "--bytes", "10GB")
    quota = shardkeep.ok("quota", "set", "access", "--checkpoints", 5, "--json").document["quota"]
    assert (quota["max_bytes"], quota["max_checkpoints"], quota["used_checkpoints"]) == (10**10, 5, 1)
    assert "of 10 GB" in shardkeep.ok("quota", "show", "access").out
    shardkeep.ok("quota", "set", "access", "--bytes", "none", "--checkpoints", "none")
    assert shardkeep.ok("quota", "show", "access", "--json").document["quota"]["max_bytes"] is None


def test_a_save_beyond_the_quota_says_what_is_used_and_what_to_do(shardkeep: CommandLine, run: str) -> None:
    shardkeep.ok("quota", "set", "access", "--checkpoints", 1)
    with shardkeep.client() as client, pytest.raises(ShardkeepError, match="delete some") as caught:
        client.run("access/more").save(1, {"w": np.zeros(8, np.float32)}).wait(60)
    shardkeep.ok("quota", "set", "access", "--checkpoints", "none")
    assert run
    failure = caught.value if isinstance(caught.value, QuotaExceeded) else caught.value.__cause__
    assert isinstance(failure, QuotaExceeded), caught.value
    assert (failure.extra["used"], failure.extra["limit"]) == (1, 1)


def test_the_audit_log_tells_who_did_what(shardkeep: CommandLine, run: str) -> None:
    entries = shardkeep.ok("audit", "--project", "access", "--action", "checkpoint", "--json").document["entries"]
    assert {entry["action"] for entry in entries} >= {"checkpoint.open", "checkpoint.commit"}
    assert shardkeep.ok("audit", "--since", "1h", "--limit", 3, "--json").document["entries"]
    assert shardkeep.ok("audit", "--until", "1h", "--json").document["entries"] == []
    shown = shardkeep.ok("audit", "--actor", "worker", "--all").out
    assert "checkpoint.commit" in shown
    assert "WHEN (UTC)" in shown


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("token", "create"), 2),
        (("token", "create", "--scope", "owner"), 2),
        (("token", "create", "--scope", "read", "--expires-in", "soon"), 2),
        (("token", "create", "--scope", "read", "--project", "nowhere"), 3),
        (("token", "job", "access"), 2),
        (("token", "job", "access/nothing"), 3),
        (("token", "revoke", "tok_" + "0" * 32), 3),
        (("quota", "set", "access"), 2),
        (("quota", "set", "access", "--bytes", "lots"), 2),
        (("quota", "set", "access", "--checkpoints", "-1"), 2),
        (("quota", "show", "nowhere"), 3),
        (("audit", "--since", "yesterday"), 2),
        (("audit", "--project", "nowhere"), 3),
    ],
)
def test_wrong_wishes_end_with_their_exit_code(
    shardkeep: CommandLine, run: str, arguments: tuple[str, ...], code: int
) -> None:
    assert run
    assert shardkeep(*arguments).code == code
