"""One rank of `bench.zero`: every contender takes steps, in turns.

Started by `bench.zero`, never by hand. Its readings go to `--report` + `.<rank>.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from bench.zero_contenders import BASELINE, Contender, contenders
from bench.zero_model import ModelSize, batch, loss_of

_WARM_UP_STEPS = 2
_TOLERANCE = 1e-3
_LOOPBACK = "lo:"


@dataclass(frozen=True, slots=True)
class Reading:
    """A run of some steps. Each figure is for one step; CPU is that of all threads, bytes are those of all ranks."""

    contender: str
    step_seconds: float
    optimizer_seconds: float
    cpu_seconds: float
    wire_bytes: float


class Turns:
    """All contenders, and what was read of them."""

    def __init__(self, size: ModelSize, found: Sequence[Contender], steps: int) -> None:
        self.readings: list[Reading] = []
        self._size = size
        self._contenders = found
        self._steps = steps
        self._taken = dict.fromkeys((one.name for one in found), 0)
        self._losses: dict[str, list[float]] = {one.name: [] for one in found}

    def warm_up(self) -> None:
        """Memory, state and recorded orders are there afterwards."""
        for contender in self._contenders:
            self._run(contender, _WARM_UP_STEPS)

    def measure(self, repetition: int) -> None:
        """One run of each; another one begins each time."""
        first = repetition % len(self._contenders)
        for contender in (*self._contenders[first:], *self._contenders[:first]):
            self.readings.append(self._run(contender, self._steps))

    def check_losses(self) -> None:
        """SystemExit unless every contender computed the same: one that trains wrong is no contender."""
        expected = self._losses[BASELINE]
        for name, losses in self._losses.items():
            if any(abs(mine - right) > _TOLERANCE * right for mine, right in zip(losses, expected, strict=True)):
                raise SystemExit(f"{name} has other losses than {BASELINE}: {losses} instead of {expected}")

    def _run(self, contender: Contender, steps: int) -> Reading:
        taken = self._taken[contender.name]
        data = [batch(self._size, step=taken + step, rank=dist.get_rank()) for step in range(steps)]
        losses, in_optimizer = [], 0.0
        dist.barrier()
        sent, cpu, started = loopback_bytes(), time.process_time(), time.monotonic()
        for one in data:
            contender.optimizer.zero_grad()
            loss = loss_of(contender.model, one)
            loss.backward()
            begun = time.monotonic()
            contender.optimizer.step()
            in_optimizer += time.monotonic() - begun
            losses.append(loss.detach())
        wall = time.monotonic() - started
        dist.barrier()
        cpu, wire = time.process_time() - cpu, loopback_bytes() - sent
        self._taken[contender.name] += steps
        self._losses[contender.name] += [float(loss) for loss in losses]
        return Reading(contender.name, wall / steps, in_optimizer / steps, cpu / steps, wire / steps)


def loopback_bytes() -> int:
    """Bytes sent over the loopback device since the machine started, by anybody."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        fields = line.split()
        if fields[0] == _LOOPBACK:
            return int(fields[9])
    raise LookupError("/proc/net/dev has no loopback device")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    for name in ("width", "blocks", "rows", "steps", "runs", "budget-bytes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--only", default="")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    size = ModelSize(arguments.width, arguments.blocks, arguments.rows)
    found = list(contenders(size, arguments.folder, arguments.budget_bytes, only=arguments.only))
    turns = Turns(size, found, arguments.steps)
    turns.warm_up()
    for repetition in range(arguments.runs):
        turns.measure(repetition)
    turns.check_losses()
    report = {
        "parameters": sum(parameter.numel() for parameter in found[0].model.parameters()),
        "readings": [asdict(reading) for reading in turns.readings],
    }
    Path(f"{arguments.report}.{dist.get_rank()}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
