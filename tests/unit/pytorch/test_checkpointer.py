"""The Checkpointer of one rank against a real service."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shardkeep as sk
from shardkeep.errors import (
    AttemptFenced,
    ConfigurationError,
    InexactResume,
    LoadError,
    NoUsableCheckpoint,
    SaveFailed,
    StateError,
    UnsupportedValue,
)
from shardkeep.pytorch.checkpointer import Checkpointer
from shardkeep.store.connect import Client
from tests.distributed.toys import Training, make_net
from tests.service_process import ServiceProcess

_numbers = itertools.count()


@pytest.fixture(scope="module")
def client(shared_service: ServiceProcess) -> Iterator[Client]:
    with sk.connect(shared_service.url, shared_service.token) as connected:
        yield connected


@pytest.fixture
def run(client: Client) -> str:
    return f"keeper/run-{next(_numbers)}"


def make_keeper(client: Client, run: str, training: Training | None = None, **options: Any) -> Checkpointer:
    items = training.items() if training is not None else {"loop": {"n": 0}}
    return Checkpointer(client.run(run), **{**items, **options})


def make_training() -> Training:
    return Training(make_net())


def train(training: Training, steps: int) -> None:
    batches = training.batches()
    for _ in range(steps):
        training.train_on(next(batches))


def test_a_new_run_resumes_fresh_at_step_0(client: Client, run: str) -> None:
    with make_keeper(client, run, make_training()) as keeper:
        assert keeper.resume() == 0
        assert keeper.resumed is not None
        assert (keeper.resumed.verdict, keeper.resumed.checkpoint) == ("fresh", None)


def test_a_resume_is_exact_and_brings_back_every_state(client: Client, run: str) -> None:
    first = make_training()
    with make_keeper(client, run, first) as keeper:
        train(first, 7)
        keeper.save(7, metrics={"loss": 0.5, "bad": float("nan")})
        saved = first.digest()
        expected = (torch.rand(()).item(), np.random.rand())
    second = make_training()
    with make_keeper(client, run, second) as keeper:
        assert keeper.resume() == 7
        assert keeper.resumed is not None
        assert keeper.resumed.reasons == ()
        assert keeper.resumed.verdict == "exact"
        assert keeper.resumed.checkpoint is not None
        assert keeper.resumed.checkpoint.metrics["loss"] == 0.5
    assert second.digest() == saved
    assert (torch.rand(()).item(), np.random.rand()) == expected


def test_what_changes_after_save_returns_is_not_in_the_checkpoint(client: Client, run: str) -> None:
    tensor, loop = torch.zeros(300_000), {"n": 1}
    with Checkpointer(client.run(run), t=tensor, loop=loop) as keeper:
        keeper.save(1)
        tensor.fill_(5)
        loop["n"] = 2
        checkpoint = keeper.wait()
        assert checkpoint is not None
    with Checkpointer(client.run(run), t=tensor, loop=loop) as keeper:
        keeper.resume()
    assert (tensor.unique().tolist(), loop) == ([0.0], {"n": 1})


@pytest.mark.parametrize("epoch_batches", [5])
def test_E73_a_save_at_the_end_of_an_epoch_resumes_with_the_same_dropout(
    client: Client, run: str, epoch_batches: int
) -> None:
    whole = make_training()
    train(whole, epoch_batches + 2)
    first = make_training()
    with make_keeper(client, run, first) as keeper:
        train(first, epoch_batches)
        assert first.sampler.samples == first.sampler.dataset_length
        keeper.save(epoch_batches)
    second = make_training()
    with make_keeper(client, run, second) as keeper:
        keeper.resume()
    train(second, 2)
    assert second.losses == whole.losses[epoch_batches:]


def test_step_saves_when_a_multiple_is_passed(client: Client, run: str) -> None:
    with make_keeper(client, run, every_steps=10) as keeper:
        assert not any(keeper.step(n) for n in (4, 9, 12, 19, 20, 21))
    assert [item.step for item in client.run(run).checkpoints()] == [20, 12]


def test_every_minutes_saves_by_the_clock(client: Client, run: str) -> None:
    with make_keeper(client, run, every_minutes=0.002 / 60) as keeper:
        keeper.resume()
        for n in range(1, 4):
            torch.zeros(1).add_(1)
            signal.sigtimedwait([], 0.003)
            keeper.step(n)
    assert len(list(client.run(run).checkpoints())) >= 2


def test_saving_before_resume_into_a_run_with_checkpoints_is_refused(client: Client, run: str) -> None:
    with make_keeper(client, run) as keeper:
        keeper.save(1)
    with make_keeper(client, run, every_steps=1) as keeper:
        for attempt in (lambda: keeper.save(2), lambda: keeper.step(2)):
            with pytest.raises(ConfigurationError, match="resume"):
                attempt()
        assert keeper.resume(fresh=True) == 0
        keeper.save(1)
    latest = client.run(run).latest()
    assert latest is not None
    assert [item.on_line for item in client.run(run).checkpoints(step=1)] == [True, False]


@pytest.mark.slow
def test_E04_a_failed_save_is_never_latest_and_blocks_no_later_step_after_a_rollback(
    service: ServiceProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with sk.connect(service.url, service.token, retry_seconds=1.0) as client:
        training = make_training()
        keeper = make_keeper(client, "p/r", training)
        keeper.save(1615)
        keeper.wait()
        service.kill()
        train(training, 1)
        keeper.step(1820)
        keeper.save(1820)
        with pytest.raises(SaveFailed):
            keeper.wait()
        service.start()
        assert [failed.step for failed in keeper.failures] == [1820]
        assert keeper.resume() == 1615
        for n in (1620, 1640, 1660):
            keeper.save(n)
        keeper.close()
        latest = client.run("p/r").latest()
        assert latest is not None
        assert latest.step == 1660
        committed = [item.step for item in client.run("p/r").checkpoints(state="committed")]
        assert committed == [1660, 1640, 1620, 1615]
    assert "the save of step 1820 failed" in caplog.text


@pytest.mark.slow
def test_E05_E15_a_failed_save_is_logged_kept_raised_by_wait_and_leaves_the_last_one_whole(
    service: ServiceProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with sk.connect(service.url, service.token, retry_seconds=1.0) as client:
        training = make_training()
        keeper = make_keeper(client, "p/r", training, every_steps=2)
        train(training, 2)
        keeper.step(2)
        keeper.wait()
        service.kill()
        train(training, 2)
        keeper.step(4)
        with pytest.raises(SaveFailed):
            keeper.wait()
        assert not any(keeper.step(n) for n in (5,)), "training goes on"
        assert [(failed.step, type(failed.error)) for failed in keeper.failures] == [(4, SaveFailed)]
        service.start()
        restored = make_training()
        with make_keeper(client, "p/r", restored) as other:
            assert other.resume() == 2
        assert restored.scheduler.last_epoch == 2
        assert {int(state["step"]) for state in restored.optimizer.state.values()} == {2}
        with pytest.raises(SaveFailed):
            keeper.close()
    assert "the save of step 4 failed" in caplog.text


@pytest.mark.slow
def test_on_error_raise_raises_at_the_next_step(service: ServiceProcess) -> None:
    with sk.connect(service.url, service.token, retry_seconds=0.5) as client:
        keeper = make_keeper(client, "p/r", every_steps=1, on_error="raise")
        keeper.step(1)
        keeper.wait()
        service.kill()
        keeper.step(2)
        with pytest.raises(SaveFailed):
            keeper.step(3)  # due itself, so it waits for the one before
        with pytest.raises(SaveFailed):
            keeper.close()


def test_a_state_that_cannot_be_stored_fails_the_save_by_path_and_the_next_one_is_made(
    client: Client, run: str
) -> None:
    loop: dict[str, Any] = {"callback": print}
    keeper = Checkpointer(client.run(run), loop=loop, every_steps=1)
    assert keeper.step(1) is False
    with pytest.raises(UnsupportedValue, match=r"loop\.callback"):
        keeper.save(1)
    loop["callback"] = "print"
    keeper.step(2)
    keeper.close()
    assert [failed.step for failed in keeper.failures] == [1, 1]
    assert [item.state for item in client.run(run).checkpoints()] == ["committed", "aborted", "aborted"]


@pytest.mark.slow
def test_E08_leaving_the_interpreter_after_save_waits_for_the_commit(
    shared_service: ServiceProcess, client: Client, run: str
) -> None:
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                f"""
                import torch, shardkeep as sk
                keeper = sk.Checkpointer({run!r}, weights=torch.ones(4_000_000))
                keeper.save(40)
                """
            ),
        ],
        env=shared_service.environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    latest = client.run(run).latest()
    assert latest is not None
    assert latest.step == 40


@pytest.mark.slow
def test_E08_a_save_that_failed_at_exit_is_reported(service: ServiceProcess) -> None:
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                f"""
                import os, signal, torch, shardkeep as sk
                run = sk.connect(retry_seconds=0.5).run("p/r")
                keeper = sk.Checkpointer(run, weights=torch.ones(4))
                keeper.save(1)
                keeper.wait()
                os.kill({service.pid}, signal.SIGKILL)
                keeper.save(2)
                """
            ),
        ],
        env=service.environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    service.wait_exit()
    assert "the save of step 2 failed" in result.stderr
    assert "not committed at exit" in result.stderr


def test_a_newer_attempt_fences_this_one_for_good(client: Client, run: str) -> None:
    old = make_keeper(client, run)
    old.save(1)
    old.wait()
    with make_keeper(client, run) as new:
        assert new.resume() == 1
    old.save(2)
    with pytest.raises(AttemptFenced):
        old.wait()
    with pytest.raises(AttemptFenced):
        old.step(3)
    with pytest.raises(AttemptFenced):
        old.close()


def test_SIGUSR1_saves_at_the_next_step_and_SIGTERM_saves_commits_and_stops(
    client: Client, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with make_keeper(client, run) as keeper:
        assert keeper.step(1) is False
        os.kill(os.getpid(), signal.SIGUSR1)
        assert keeper.step(2) is False
        assert keeper.step(3) is False
        os.kill(os.getpid(), signal.SIGTERM)
        assert keeper.stop_requested
        assert keeper.step(4) is True
        assert [item.state for item in client.run(run).checkpoints()] == ["committed", "committed"]
        assert keeper.step(5) is True
    assert [item.step for item in client.run(run).checkpoints()] == [4, 2]
    assert "stopping at step 4 as requested: step 4 is saved and committed" in caplog.text
    assert signal.getsignal(signal.SIGTERM) is before


def test_E176_a_long_loop_polls_and_the_step_just_done_is_saved(client: Client, run: str) -> None:
    with make_keeper(client, run, every_steps=100) as keeper:
        keeper.step(7)
        polls = 0
        for polls in range(1000):  # an evaluation
            if polls == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            if keeper.poll():
                break
        assert polls == 3
        assert keeper.step(7) is True
    assert [item.step for item in client.run(run).checkpoints(state="committed")] == [7]


def test_E176_leaving_without_a_save_says_so(client: Client, run: str, caplog: pytest.LogCaptureFixture) -> None:
    with make_keeper(client, run) as keeper:
        os.kill(os.getpid(), signal.SIGTERM)
    assert keeper.stop_requested
    assert "a stop was requested and step() did not act on it: no save was made" in caplog.text


def test_a_stop_right_after_a_due_save_saves_once(client: Client, run: str) -> None:
    with make_keeper(client, run, every_steps=1) as keeper:
        keeper.step(1)
        keeper.request_save(stop=True)
        assert keeper.step(1) is True
    assert len(list(client.run(run).checkpoints())) == 1


def test_without_signals_and_requests_from_outside_nothing_can_be_requested(client: Client, run: str) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with make_keeper(client, run, signals=False, remote_saves=False) as keeper:
        assert signal.getsignal(signal.SIGUSR1) is before
        with pytest.raises(ConfigurationError, match="signals=False"):
            keeper.request_save()


def test_E71_an_open_accumulation_window_puts_saves_off_and_refuses_explicit_ones(client: Client, run: str) -> None:
    with make_keeper(client, run, every_steps=8) as keeper:
        with keeper.accumulating():
            assert keeper.step(8) is False
            with pytest.raises(StateError, match="accumulation"):
                keeper.save(8)
        assert list(client.run(run).checkpoints()) == [] if keeper.resumed else True
        keeper.step(9)
    assert [item.step for item in client.run(run).checkpoints()] == [9]


def test_E09_only_an_incomplete_checkpoint_is_no_fresh_start(
    client: Client, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    loop: dict[str, Any] = {"callback": print}
    keeper = Checkpointer(client.run(run), loop=loop)
    with pytest.raises(UnsupportedValue):
        keeper.save(10)
    with pytest.raises(UnsupportedValue):
        keeper.close()
    with make_keeper(client, run) as keeper:
        with pytest.raises(NoUsableCheckpoint) as caught:
            keeper.resume()
        assert [passed.step for passed in caught.value.passed_over] == [10]
        assert "of step 10: " in caplog.text
        assert keeper.resume(fresh=True) == 0
        keeper.save(1)


def test_a_chosen_checkpoint_is_resumed_and_the_rest_leaves_the_line(client: Client, run: str) -> None:
    loop = {"n": 0}
    with make_keeper(client, run, loop=loop) as keeper:
        ids = {}
        for n in (1, 2, 3):
            loop["n"] = n
            keeper.save(n)
            saved = keeper.wait()
            assert saved is not None
            ids[n] = saved.id
        assert keeper.resume(ids[1]) == 1
        assert loop == {"n": 1}
        keeper.save(2)
    assert [(item.step, item.on_line) for item in client.run(run).checkpoints()] == [
        (2, True),
        (3, False),
        (2, False),
        (1, True),
    ]


def test_strict_refuses_a_difference_before_anything_changes(client: Client, run: str) -> None:
    first = make_training()
    with make_keeper(client, run, first) as keeper:
        train(first, 2)
        keeper.save(2)
    second = make_training()
    untouched = second.digest()
    with make_keeper(client, run, second, noise=np.random.default_rng(0)) as keeper:
        torch.set_num_threads(torch.get_num_threads() + 1)
        try:
            with pytest.raises(InexactResume) as caught:
                keeper.resume(strict=True)
        finally:
            torch.set_num_threads(torch.get_num_threads() - 1)
        assert second.digest() == untouched
        assert len(caught.value.reasons) == 2, caught.value.reasons
        assert keeper.resume() == 2
        assert keeper.resumed is not None
        assert keeper.resumed.verdict == "inexact"
        assert keeper.resumed.reasons == ("random generator 'item.noise' exists here and was not saved",)


def test_a_data_position_of_another_order_is_refused_before_anything_changes(client: Client, run: str) -> None:
    first = make_training()
    with make_keeper(client, run, first) as keeper:
        train(first, 1)
        keeper.save(1)
    second = make_training()
    second.sampler.seed = 99
    untouched = second.digest()
    with make_keeper(client, run, second) as keeper, pytest.raises(LoadError, match="seed was 5"):
        keeper.resume()
    assert second.digest() == untouched


def test_missing_and_extra_names_are_errors_unless_allowed(client: Client, run: str) -> None:
    with Checkpointer(client.run(run), model=torch.nn.Linear(2, 2)) as keeper:
        keeper.save(1)
    wider = torch.nn.Sequential(OrderedDict(extra=torch.nn.Linear(1, 1)))
    with Checkpointer(client.run(run), model=wider) as keeper:
        with pytest.raises(LoadError, match=r"extra\.weight"):
            keeper.resume()
        assert keeper.resume(allow_missing=["model"], allow_unexpected=["model"]) == 1
        assert keeper.resumed is not None
        assert any("extra.weight" in reason for reason in keeper.resumed.reasons)


def test_E62_saving_twice_without_moving_the_data_warns(
    client: Client, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    with make_keeper(client, run, make_training()) as keeper:
        keeper.save(1)
        keeper.save(2)
    assert "data position 'data' is the same at step 2 as at step 1" in caplog.text


def test_named_generators_come_back(client: Client, run: str) -> None:
    noise = np.random.default_rng(1)
    with Checkpointer(client.run(run), noise=noise) as keeper:
        keeper.save(1)
        expected = noise.random(3).tolist()
        keeper.resume()
        assert noise.random(3).tolist() == expected


def test_rng_false_keeps_the_global_generators_and_says_that_the_resume_is_inexact(client: Client, run: str) -> None:
    with make_keeper(client, run, rng=False) as keeper:
        keeper.save(1)
        torch.rand(1)
        before = torch.get_rng_state()
        keeper.resume()
        assert torch.equal(torch.get_rng_state(), before)
        assert keeper.resumed is not None
        assert keeper.resumed.reasons == ("random generators are not kept (rng=False)",)


def test_restore_random_undoes_what_iterators_drew(client: Client, run: str) -> None:
    with make_keeper(client, run) as keeper:
        keeper.save(1)
        expected = torch.rand(2)
        keeper.resume()
        iter(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(2))))
        keeper.restore_random()
        assert torch.equal(torch.rand(2), expected)


def test_a_big_value_goes_through_chunks_and_comes_back(client: Client, run: str) -> None:
    loop: dict[str, Any] = {"text": "x" * 200_000, "again": "x" * 200_000, "table": list(range(50_000))}
    with make_keeper(client, run, loop=loop) as keeper:
        keeper.save(1)
        kept = dict(loop)
        loop.clear()
        loop["text"] = ""
        keeper.resume()
    assert loop == kept


def test_options_that_cannot_work_are_refused(client: Client, run: str) -> None:
    refused: list[dict[str, Any]] = [
        {"every_steps": 0},
        {"every_minutes": 0},
        {"on_error": "ignore"},
        {"state": {"loop": {}}},
    ]
    for options in refused:
        with pytest.raises(ConfigurationError):
            make_keeper(client, run, **options)
    with pytest.raises(TypeError, match="put it in a dict"):
        Checkpointer(client.run(run), epoch=3)


def test_a_closed_keeper_is_closed(client: Client, run: str) -> None:
    keeper = make_keeper(client, run)
    keeper.close()
    keeper.close()
    with pytest.raises(ConfigurationError, match="closed"):
        keeper.step(1)


def test_what_came_of_each_save_is_logged(client: Client, run: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="shardkeep")
    with make_keeper(client, run) as keeper:
        keeper.save(1)
        keeper.save(1)
        keeper.resume()
    assert "step 1 is already saved" in caplog.text
    assert "of step 1 (exact)" in caplog.text


def test_a_run_is_found_by_name_from_the_environment(
    shared_service: ServiceProcess, run: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in shared_service.environment().items():
        monkeypatch.setenv(name, value)
    with Checkpointer(run, loop={"n": 1}, codec="zstd", staging_bytes=16 << 20) as keeper:
        keeper.save(1)
        saved = keeper.wait()
    assert saved is not None
    assert (f"{saved.info.project}/{saved.info.run}", saved.step) == (run, 1)
