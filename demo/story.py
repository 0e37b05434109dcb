"""The story: train, be killed in the middle of a save, continue exactly; then on 3 ranks, then on 1.

With the sharded optimizer stage 2 goes on as stage 3, and that as plain PyTorch; or all jobs have FSDP2. Told to any
service that has a URL: `demo.__main__` tells it to an embedded one, `demo.cluster` to a cluster.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from rich.console import Console
from rich.table import Table

import shardkeep as sk
from demo.gate import Gate, Trap
from demo.ranks import Job, RunningJob, events, run_to_end, start
from demo.setups import Setup
from demo.training import EVERY_STEPS, GLOBAL_BATCH, WINDOWS

RUN = "demo/gpt"
REFERENCE = "reference/gpt"
EPOCH_STEPS = WINDOWS // GLOBAL_BATCH
KILLED_SAVE_STEP = 3 * EVERY_STEPS
SECOND_END = 4 * EVERY_STEPS
THIRD_END = 7 * EVERY_STEPS
MANIFEST_SENT = r"^PUT /v1/checkpoints/[^/]+/manifests/\d+$"

OptimizerName = Literal["zero2", "fsdp2"]
SETUPS_OF: Final[dict[OptimizerName, tuple[Setup, Setup, Setup]]] = {
    "zero2": ("zero2", "zero3", "plain"),
    "fsdp2": ("fsdp2", "fsdp2", "fsdp2"),
}
"""Of the jobs on 2, 3 and 1 ranks."""

console = Console(width=110)


@dataclass(frozen=True, slots=True)
class Stage:
    """One job of the surviving line: its steps up to `last_step` count."""

    job: Job
    last_step: int


def check(claim: str, *, holds: bool) -> None:
    """Prints a claim that was checked; a false one ends the demo."""
    console.print(f"  [{'green' if holds else 'red'}]{'✓' if holds else '✗'}[/] {claim}")
    if not holds:
        raise SystemExit(f"not true: {claim}")


def one(job: Job, rank: int, event: str) -> dict[str, Any]:
    """The single event of this kind that a rank wrote."""
    (found,) = [entry for entry in events(job, rank) if entry["event"] == event]
    return found


def losses(job: Job, rank: int) -> dict[int, str]:
    """Exact losses (hexadecimal floats) by step."""
    return {entry["step"]: entry["loss"] for entry in events(job, rank) if entry["event"] == "step"}


def check_exact_resume(reference: Job, killed: Job, resumed: Job) -> None:
    """Losses and final state of killed + resumed equal those of the uninterrupted run, bit for bit."""
    for rank in range(2):
        begun = one(resumed, rank, "resumed")
        check(
            f"rank {rank} resumed from step {begun['step']} ({begun['verdict']})",
            holds=begun["step"] == KILLED_SAVE_STEP - EVERY_STEPS and begun["verdict"] == "exact",
        )
        expected, before, after = losses(reference, rank), losses(killed, rank), losses(resumed, rank)
        check(
            f"rank {rank}: losses of steps 1-{max(before)} before the kill equal the uninterrupted run's",
            holds=all(expected[step] == loss for step, loss in before.items()),
        )
        check(
            f"rank {rank}: losses of steps {min(after)}-{max(after)} after it equal them bit for bit",
            holds=bool(after) and all(expected[step] == loss for step, loss in after.items()),
        )
    mine, theirs = one(resumed, 0, "done")["state"], one(reference, 0, "done")["state"]
    check(f"all {len(mine)} final weights and moments are equal bit for bit", holds=mine == theirs)


def check_other_world_size(previous: Job, job: Job, from_step: int) -> None:
    """Every tensor the previous job ended with arrived bit-equal on another number of ranks."""
    begun = one(job, 0, "resumed")
    arrived, expected = begun["state"], one(previous, 0, "done")["state"]
    check(
        f"{job.ranks} rank(s) resumed from step {begun['step']} and all {len(arrived)} tensors arrived bit-equal",
        holds=begun["step"] == from_step and arrived == expected,
    )
    console.print(f"    verdict: {begun['verdict']}; {'; '.join(begun['reasons'])}")


def check_every_sample_once(line: list[Stage]) -> None:
    """Along the surviving line each index of the epoch was seen exactly once."""
    seen: Counter[int] = Counter()
    for stage in line:
        for rank in range(stage.job.ranks):
            for entry in events(stage.job, rank):
                if entry["event"] == "step" and entry["step"] <= stage.last_step:
                    seen.update(entry["indices"])
    check(
        f"along the surviving line each of the {WINDOWS} samples was seen exactly once",
        holds=len(seen) == WINDOWS and set(seen.values()) == {1},
    )


class Story:
    """One telling: its jobs talk to the service at `url`, and the one that is killed through a gate before `port`."""

    def __init__(self, *, port: int, token: str, folder: Path, optimizer: OptimizerName = "zero2") -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.token = token
        self._gate = Gate(port)
        on_2, on_3, on_1 = SETUPS_OF[optimizer]
        self.reference = Job(REFERENCE, on_2, 2, SECOND_END, folder / "reference")
        self.killed = Job(RUN, on_2, 2, SECOND_END, folder / "killed")
        self.resumed = Job(RUN, on_2, 2, SECOND_END, folder / "resumed")
        self.third = Job(RUN, on_3, 3, THIRD_END, folder / "on-3")
        self.last = Job(RUN, on_1, 1, EPOCH_STEPS, folder / "on-1")

    def tell(self) -> None:
        """The whole story; every claim is checked."""
        console.rule(f"an uninterrupted run: {self.reference.setup}, 2 ranks, {SECOND_END} steps")
        self.run(self.reference)
        console.rule(f"the same again, killed in the middle of the save of step {KILLED_SAVE_STEP}")
        self._kill_in_the_middle_of_a_save()
        console.rule(f"a new job resumes on 2 ranks ({self.resumed.setup})")
        self.resume()
        check_exact_resume(self.reference, self.killed, self.resumed)
        console.rule(f"another resumes on 3 ranks ({self.third.setup})")
        self.run(self.third)
        check_other_world_size(self.resumed, self.third, SECOND_END)
        console.rule(f"and another on 1 ({self.last.setup})")
        self.run(self.last)
        check_other_world_size(self.third, self.last, THIRD_END)
        console.rule("the data")
        self._check_every_sample()
        console.rule("what the service holds")
        self._show_what_the_service_holds()
        self._gate.close()

    def run(self, job: Job) -> None:
        """Runs a job that must succeed."""
        run_to_end(job, url=self.url, token=self.token)

    def resume(self) -> None:
        """Runs the job that follows the killed one."""
        self.run(self.resumed)

    def _kill_in_the_middle_of_a_save(self) -> None:
        """Runs the job until the first rank sends its manifest of the third save, and kills all ranks there."""
        running: list[RunningJob] = []

        def kill() -> None:
            running[0].kill()

        manifests_before = 2 * self.killed.ranks  # the first two saves
        self._gate.set_trap(Trap(MANIFEST_SENT, manifests_before + 1, kill))
        running.append(start(self.killed, url=self._gate.url, token=self.token))
        codes = running[0].wait()
        self._gate.set_trap(None)
        check(f"every rank was killed by SIGKILL: exit codes {codes}", holds=all(code == -9 for code in codes))

    def _check_every_sample(self) -> None:
        check_every_sample_once(
            [
                Stage(self.killed, KILLED_SAVE_STEP - EVERY_STEPS),
                Stage(self.resumed, SECOND_END),
                Stage(self.third, THIRD_END),
                Stage(self.last, EPOCH_STEPS),
            ]
        )

    def _show_what_the_service_holds(self) -> None:
        """Lists the checkpoints of the run as the service knows them."""
        table = Table(title=f"checkpoints of {RUN}")
        for column in ("step", "attempt", "ranks", "state", "on the line", "bytes", "new bytes", "loss"):
            table.add_column(column, justify="right")
        with sk.connect(self.url, self.token) as client:
            for info in client.run(RUN).checkpoints(limit=100):
                loss = info.metrics.get("loss")
                table.add_row(
                    str(info.step), str(info.attempt_number), str(info.world_size), info.state,
                    "yes" if info.on_line else "no", f"{info.stored_bytes or 0:,}", f"{info.new_bytes or 0:,}",
                    "" if loss is None else f"{loss:.4f}",
                )  # fmt: skip
            latest = client.run(RUN).latest()
        console.print(table)
        check(f"latest is step {EPOCH_STEPS}", holds=latest is not None and latest.step == EPOCH_STEPS)
