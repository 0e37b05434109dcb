"""Listing, showing, comparing and keeping; what goes wrong and how that ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from shardkeep.cli.invocation import STAGING_BYTES
from shardkeep.format.regions import Region
from shardkeep.protocol.identifiers import new_launch_id
from shardkeep.store.world import World
from tests.faulty_proxy import DROPPED, Exchange, FaultyProxy, Reply
from tests.integration.cli.command_line import COMMAND, CommandLine, Part, save, whole
from tests.service_process import closed_port

rng = np.random.default_rng(3)


@pytest.fixture(scope="module")
def history(shardkeep: CommandLine) -> list[str]:
    """Two checkpoints of look/r at step 10, in attempts of their own, then one at step 20; their ids."""
    weight = rng.standard_normal((600, 1000)).astype(np.float32)
    changed = weight.copy()
    changed[599, 999] += 1
    with shardkeep.client() as client:
        first = save(client, "look/r", 10, [[whole("model.w", weight), whole("old", np.ones(2))]])
        second = save(client, "look/r", 10, [[whole("model.w", weight), whole("old", np.ones(2))]])
        halves = [Region((0, 0), (300, 1000)), Region((300, 0), (300, 1000))]
        parts = [[Part("model.w", (600, 1000), half, changed[half.offsets[0] : half.ends[0]])] for half in halves]
        parts[0].append(whole("new", np.ones(3)))
        third = save(client, "look/r", 20, parts)
    return [first.id, second.id, third.id]


def test_projects_runs_and_checkpoints_are_listed_newest_first(shardkeep: CommandLine, history: list[str]) -> None:
    projects = shardkeep.ok("ls", "--json", "--all").document["projects"]
    assert "look" in [project["name"] for project in projects]
    assert [run["name"] for run in shardkeep.ok("ls", "look", "--json").document["runs"]] == ["r"]
    assert [item["id"] for item in shardkeep.ok("ls", "look/r", "--json").document["checkpoints"]] == history[::-1]
    step = shardkeep.ok("ls", "look/r", "--step", 10, "--json").document["checkpoints"]
    assert [item["id"] for item in step] == [history[1], history[0]]
    limited = shardkeep.ok("ls", "look/r", "--limit", 1, "--json")
    assert (len(limited.document["checkpoints"]), limited.document["more"]) == (1, True)
    text = shardkeep.ok("ls", "look/r")
    assert all(item in text.out for item in history)
    assert "loss=0.5" in text.out


def test_an_empty_list_says_so_on_stderr(shardkeep: CommandLine, history: list[str]) -> None:
    done = shardkeep.ok("ls", "look/r", "--state", "aborted")
    assert "no aborted checkpoint" in done.err


def test_a_checkpoint_is_shown_with_its_tensors(shardkeep: CommandLine, history: list[str]) -> None:
    shown = shardkeep.ok("show", "look/r", "--tensors", "--prefix", "model", "--json").document
    assert shown["checkpoint"]["id"] == history[2]
    assert [(tensor["name"], tensor["dtype"], tensor["shape"]) for tensor in shown["tensors"]] == [
        ("model.w", "float32", [600, 1000])
    ]
    text = shardkeep.ok("show", "look/r@latest", "--tensors").out
    assert "model.w" in text
    assert "[600, 1000]" in text
    assert "Ranks       2" in text


def test_a_step_that_several_checkpoints_off_the_line_have_lists_them(
    shardkeep: CommandLine, history: list[str]
) -> None:
    done = shardkeep("show", "look/r@10")
    assert done.code == 3
    assert all(item in done.err for item in history[:2])


def test_an_aborted_checkpoint_is_shown_with_its_reason_and_missing_ranks(shardkeep: CommandLine) -> None:
    with shardkeep.client() as client:
        attempt = client.run("abort/r").begin_attempt(World(0, 3, new_launch_id()), 0)
        attempt.decide_resume(fresh=True)
        handle = attempt.start_save(7, expected_bytes=1).abort("disk on fire")
        checkpoint_id = handle.checkpoint_id
        attempt.wait_in_flight()
        handle.exception()
    text = shardkeep.ok("show", "abort/r@7").out
    assert checkpoint_id in text
    assert "disk on fire" in text
    assert "missing ranks" in text
    refused = shardkeep("pull", "abort/r@7", "nowhere")
    assert (refused.code, "aborted" in refused.err) == (3, True)
    latest = shardkeep("show", "abort/r", "--json")
    assert (latest.code, latest.error["code"]) == (3, "checkpoint_not_committed")


def test_a_difference_is_told_by_tensor_with_what_is_reused(shardkeep: CommandLine, history: list[str]) -> None:
    same = shardkeep.ok("diff", history[0], history[1], "--json").document
    assert (same["identical"], same["reused_bytes"]) == (True, same["bytes"])
    found = shardkeep.ok("diff", history[1], history[2], "--json").document
    changes = {item["name"]: item["change"] for item in found["tensors"]}
    assert changes == {"model.w": "recut", "old": "removed", "new": "added"}
    assert "recut" in shardkeep.ok("diff", history[1], history[2]).out


def test_one_changed_element_changes_one_segment(shardkeep: CommandLine) -> None:
    array = rng.standard_normal(1 << 20).astype(np.float32)
    other = array.copy()
    other[0] += 1
    with shardkeep.client() as client:
        save(client, "delta/r", 1, [[whole("w", array)]])
        save(client, "delta/r", 2, [[whole("w", other)]])
    found = shardkeep.ok("diff", "delta/r@1", "delta/r@2", "--json").document
    assert found["counts"]["changed"] == 1
    assert found["reused_bytes"] == 3 << 20


def test_pinning_deleting_and_restoring(shardkeep: CommandLine) -> None:
    with shardkeep.client() as client:
        checkpoint_id = save(client, "keep/r", 1, [[whole("w", np.ones(3))]]).id
    assert shardkeep.ok("pin", "keep/r", "--reason", "paper", "--json").document["checkpoint"]["pin_reason"] == "paper"
    assert "paper" in shardkeep.ok("show", "keep/r").out
    pinned = shardkeep("rm", checkpoint_id, "--yes", "--json")
    assert (pinned.code, pinned.error["code"]) == (4, "checkpoint_pinned")
    shardkeep.ok("unpin", "keep/r")
    unasked = shardkeep("rm", checkpoint_id, stdin="y\n")
    assert (unasked.code, "--yes" in unasked.err) == (4, True)
    assert shardkeep("rm", "keep/r", "--yes").code == 2
    shardkeep.ok("rm", "keep/r@latest", "--yes")
    assert shardkeep("show", "keep/r").code == 3
    assert [item["state"] for item in shardkeep.ok("ls", "keep/r", "--all", "--json").document["checkpoints"]] == [
        "deleted"
    ]
    shardkeep.ok("restore", "keep/r@1")
    shardkeep.ok("restore", checkpoint_id)
    assert shardkeep.ok("show", "keep/r", "--json").document["checkpoint"]["id"] == checkpoint_id


def test_a_person_at_a_terminal_is_asked_before_a_delete(shardkeep: CommandLine) -> None:
    with shardkeep.client() as client:
        checkpoint_id = save(client, "ask/r", 1, [[whole("w", np.ones(3))]]).id
    for answer, code, state in (("n\n", 4, "committed"), ("y\n", 0, "deleted")):
        ours, theirs = os.openpty()
        os.write(ours, answer.encode())
        done = subprocess.run(
            [*COMMAND, "rm", checkpoint_id],
            env=shardkeep.environment(),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        os.close(ours)
        os.close(theirs)
        assert (done.returncode, "Delete ckp_" in done.stderr) == (code, True)
        assert shardkeep.ok("show", checkpoint_id, "--json").document["checkpoint"]["state"] == state


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("show", "nothing/r"), 3, "unknown_project"),
        (("show", "look/nothing"), 3, "unknown_run"),
        (("show", "look/r@99"), 3, "unknown_checkpoint"),
        (("show", "ckp_" + "0" * 32), 3, "unknown_checkpoint"),
        (("ls", "nothing"), 3, "unknown_project"),
    ],
)
def test_what_is_not_there_ends_with_3(
    shardkeep: CommandLine, history: list[str], arguments: tuple[str, ...], code: int, error: str
) -> None:
    done = shardkeep(*arguments, "--json")
    assert (done.code, done.error["code"], done.error["exit_code"]) == (code, error, code)
    assert done.out == ""
    text = shardkeep(*arguments)
    assert (text.code, text.err.startswith("shardkeep: ")) == (code, True)


def test_a_wrong_token_is_refused(shardkeep: CommandLine) -> None:
    done = shardkeep("ls", "--json", env={"SHARDKEEP_TOKEN": "shardkeep_wrong"})
    assert (done.code, done.error["code"]) == (4, "token_invalid")
    given = shardkeep("ls", "--token", "shardkeep_wrong")
    assert (given.code, "SHARDKEEP_TOKEN" in given.err, "shardkeep_wrong" in given.err) == (4, True, False)


def test_a_service_that_is_not_there_is_unreachable_soon(shardkeep: CommandLine) -> None:
    started = time.monotonic()
    with closed_port() as port:
        done = shardkeep("ls", "--json", env={"SHARDKEEP_URL": f"http://127.0.0.1:{port}"})
    assert (done.code, done.error["code"]) == (5, "connection_failed")
    assert time.monotonic() - started < 60


def test_a_reader_that_goes_away_is_no_error_message(shardkeep: CommandLine, history: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, "ls", "look/r", "--json"],
        env=shardkeep.environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


# A test run that a shell started in the background ignores SIGINT, and so would everything it starts.
INTERRUPTIBLE = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from shardkeep.cli.main import main; sys.exit(main())"
)


@pytest.mark.slow
def test_a_push_interrupted_while_it_reads_ends_with_130_and_aborts_its_checkpoint(
    shardkeep: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "big.safetensors"
    size = 2 * STAGING_BYTES  # more than can be staged while nothing is taken
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + rng.bytes(size))
    held, ended = threading.Event(), threading.Event()

    def hold(_exchange: Exchange) -> Reply:
        held.set()
        ended.wait(60)
        return DROPPED

    with FaultyProxy(shardkeep.service.port) as proxy, shardkeep.client() as client:
        proxy.fail("^PUT .*/chunks/[0-9a-f]{64}", hold, times=1000, forwards=False)
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE, "push", str(path), "interrupt/r", "--step", "1"],
            env=shardkeep.environment({"SHARDKEEP_URL": proxy.url}),
            stderr=subprocess.PIPE,
            text=True,
        )
        assert held.wait(60)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # the signal is there before the answer
        ended.set()
        _, err = process.communicate(timeout=120)
        assert (process.returncode, "Traceback" in err, "interrupted" in err) == (130, False, True)
        assert [item.state for item in client.run("interrupt/r").checkpoints()] == ["aborted"]


def test_help_names_every_command(shardkeep: CommandLine) -> None:
    text = shardkeep.ok("--help").out
    for command in ("ls", "show", "diff", "verify", "pull", "push", "pin", "unpin", "rm", "restore"):
        assert f"\n  {command}" in text
