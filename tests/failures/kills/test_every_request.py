"""Invariant 1 and 2 under kills: a save of 2 ranks is cut at every request, by killing a rank, the service, or both.

After each cut the latest checkpoint is the old or the new one, whole and bit-equal, and the next save succeeds.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

import shardkeep as sk
from demo.gate import Gate, Trap
from shardkeep.errors import AttemptFenced
from shardkeep.format.regions import Region
from shardkeep.store.checkpoint import ReadRequest
from shardkeep.store.world import World
from tests.failures.kills.made_up_state import NAMES, SHAPE, rows_of
from tests.failures.kills.saving_rank import RankTask, save, save_and_tell
from tests.service_process import ServiceProcess
from tests.warm_process import forkserver

pytestmark = pytest.mark.slow

Victim = Literal["rank", "service", "both"]
When = Literal["before", "after"]
WORLD_SIZE = 2
LIMIT_SECONDS = 120
REQUESTS_AT_LEAST = 12
REQUESTS_AT_MOST = 60
MISSES_AT_MOST = 5
QUICK_LEASES = {
    "SHARDKEEP_SERVICE_LEASE_SECONDS": "5",
    "SHARDKEEP_SERVICE_BEAT_SECONDS": "0.5",
    "SHARDKEEP_SERVICE_VALIDATION_LEASE_SECONDS": "1.5",
}

PROCESSES = forkserver()


def tasks(run: str, step: int, url: str, token: str) -> list[RankTask]:
    launch = secrets.token_hex(16)
    return [RankTask(url, token, run, step, World(rank, WORLD_SIZE, launch)) for rank in range(WORLD_SIZE)]


class Job:
    """Two rank processes that save one step."""

    def __init__(self, ranks: list[RankTask]) -> None:
        self.ranks = []
        self._answers = []
        for rank in ranks:
            answer, told = PROCESSES.Pipe(duplex=False)
            self.ranks.append(PROCESSES.Process(target=save_and_tell, args=(rank, told)))
            self._answers.append(answer)
            self.ranks[-1].start()
            told.close()

    def kill(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.join()

    def outputs(self) -> list[str]:
        """What each rank told before it ended or was killed."""
        told = []
        for rank, answer in zip(self.ranks, self._answers, strict=True):
            rank.join(LIMIT_SECONDS)
            if rank.is_alive():
                rank.kill()
                rank.join()
                raise AssertionError(f"{rank.name} hung")
            told.append(answer.recv() if answer.poll() and rank.exitcode == 0 else f"killed {rank.exitcode}")
        return told


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("kills") / "data", env=QUICK_LEASES) as running:
        yield running


@pytest.fixture(scope="module")
def gate(service: ServiceProcess) -> Iterator[Gate]:
    opened = Gate(service.port)
    yield opened
    opened.close()


def save_undisturbed(run: str, step: int, service: ServiceProcess) -> None:
    """Both ranks in threads of this process."""
    with ThreadPoolExecutor(WORLD_SIZE) as ranks:
        ids = list(ranks.map(save, tasks(run, step, service.url, service.token)))
    assert len(set(ids)) == 1


def save_after_the_kill(run: str, step: int, service: ServiceProcess) -> None:
    """A request of the dead job may be served only now and begin the newer attempt: then the next one saves."""
    try:
        save_undisturbed(run, step, service)
    except AttemptFenced:
        save_undisturbed(run, step, service)


def whole_step(service: ServiceProcess, run: str) -> int:
    """The step of the latest checkpoint, every element of which was read and compared."""
    with sk.connect(service.url, service.token) as client:
        latest = client.run(run).latest()
        assert latest is not None
        for name in NAMES:
            out = np.empty(SHAPE, dtype=np.float32)
            latest.read([ReadRequest(name, Region.whole(SHAPE), out.data.cast("B"))])
            assert np.array_equal(out, rows_of(name, latest.step, 0, SHAPE[0])), f"{name} of step {latest.step} differs"
        assert latest.values()["step",] == latest.step
        return latest.step


def wait_while_validating(service: ServiceProcess, run: str) -> None:
    """Returns when no checkpoint has all its manifests and is not decided: one that does commits without its ranks."""
    until = time.monotonic() + LIMIT_SECONDS
    with sk.connect(service.url, service.token) as client:
        while any(one.state.value == "validating" for one in client.run(run).checkpoints()):
            assert time.monotonic() < until, "a validation does not end"
            time.sleep(0.02)


class Cut:
    """Kills the victim when the trap springs, once the job is known."""

    def __init__(self, victim: Victim, service: ServiceProcess) -> None:
        self._victim = victim
        self._service = service
        self._started = threading.Event()
        self._began = threading.Event()
        self.happened = threading.Event()
        self._job: Job | None = None

    def aim_at(self, job: Job) -> None:
        self._job = job
        self._started.set()

    def wait(self) -> bool:
        """Whether it happened, rather than that the job ended without it."""
        assert self._job is not None
        deadline = time.monotonic() + LIMIT_SECONDS
        while not self.happened.wait(0.02):
            assert time.monotonic() < deadline, "the job hangs"
            if not any(rank.is_alive() for rank in self._job.ranks):
                return self._began.is_set() and self.happened.wait(LIMIT_SECONDS)
        return True

    def __call__(self) -> None:
        assert self._started.wait(LIMIT_SECONDS)
        assert self._job is not None
        self._began.set()
        if self._victim in {"service", "both"}:
            self._service.kill()
        if self._victim == "rank":
            self._job.ranks[0].kill()
        elif self._victim == "both":
            self._job.kill()
        self.happened.set()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("victim", "when"),
    [("rank", "before"), ("rank", "after"), ("service", "before"), ("service", "after"), ("both", "after")],
)
def test_E01_a_save_cut_at_any_request_leaves_the_old_or_the_new_checkpoint_whole(
    victim: Victim, when: When, service: ServiceProcess, gate: Gate
) -> None:
    ends: set[int] = set()
    wanted = {2} if victim == "service" else {1, 2}
    misses = 0
    for number in range(1, REQUESTS_AT_MOST):
        run = f"kills/{victim}-{when}-{number}"
        save_undisturbed(run, 1, service)
        cut = Cut(victim, service)
        gate.set_trap(Trap(".", number, cut, when))
        job = Job(tasks(run, 2, gate.url, service.token))
        cut.aim_at(job)
        was_cut = cut.wait()
        gate.set_trap(None)
        if not was_cut:  # the save ended before its nth request; it takes some more or fewer, as polls go
            assert all(line.startswith("committed") for line in job.outputs())
            assert number > REQUESTS_AT_LEAST
            misses += 1
            if ends == wanted or misses == MISSES_AT_MOST:
                break
            continue
        if victim != "rank":
            service.start()
        if victim == "service":
            told = job.outputs()
            assert all(line.startswith("committed") for line in told), f"a restart lost the save: {told}"
            assert whole_step(service, run) == 2
        wait_while_validating(service, run)
        ends.add(whole_step(service, run))
        job.kill()  # as a scheduler does once one rank has died; a rank that only now began would be the newer attempt
        save_after_the_kill(run, 3, service)
        assert whole_step(service, run) == 3
    else:
        raise AssertionError(f"a save takes {REQUESTS_AT_MOST} requests or more")
    assert ends == wanted, "the cuts did not reach both sides of the commit"


def test_E17_the_ranks_left_over_are_told_which_rank_is_gone(service: ServiceProcess, gate: Gate) -> None:
    run = "kills/left-over"
    save_undisturbed(run, 1, service)
    cut = Cut("rank", service)
    gate.set_trap(Trap("/chunks/negotiate", 1, cut, "after"))
    first, second = tasks(run, 2, gate.url, service.token)
    job = Job([first, replace(second, url=service.url)])  # the trap is rank 0's, which has opened the checkpoint
    cut.aim_at(job)
    killed, left = job.outputs()
    assert killed == "killed -9"
    assert left.startswith("failed SaveFailed")
    assert "rank 0" in left
    assert whole_step(service, run) == 1


def test_a_save_survives_a_service_that_was_away_for_longer_than_the_lease(service: ServiceProcess, gate: Gate) -> None:
    run = "kills/long-outage"
    save_undisturbed(run, 1, service)
    cut = Cut("service", service)
    gate.set_trap(Trap("/chunks/negotiate", 1, cut))
    job = Job(tasks(run, 2, gate.url, service.token))
    cut.aim_at(job)
    assert cut.happened.wait(LIMIT_SECONDS)
    time.sleep(1.5 * float(QUICK_LEASES["SHARDKEEP_SERVICE_LEASE_SECONDS"]))
    service.start()
    assert all(told.startswith("committed") for told in job.outputs())
    assert whole_step(service, run) == 2
