"""A real training loop in a process of its own, which begins to step when it is told to and ends when it is told to."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.waiting import wait_until
from tests.warm_process import forkserver

_PR_SET_PDEATHSIG: Final = 1
_WAIT_SECONDS: Final = 120.0


@contextmanager
def training(run: str, directory: Path, env: Mapping[str, str]) -> Iterator[Training]:
    """A job that has resumed `run` and waits before its first step; ended at the end."""
    process = forkserver().Process(target=_train, args=(run, directory, dict(env)), daemon=True)
    process.start()
    job = Training(directory)
    try:
        job.wait_for("ready")
        yield job
        job.tell("stop")
        process.join(_WAIT_SECONDS)
        assert process.exitcode == 0, process.exitcode
    finally:
        process.kill()
        process.join(30)


class Training:
    """What is said to the job, and by it: by files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def tell(self, word: str) -> None:
        """Says `word` for good."""
        (self._directory / word).touch()

    def hears(self, word: str) -> bool:
        """Whether it was said."""
        return (self._directory / word).exists()

    def wait_for(self, word: str) -> None:
        """Returns once it was said."""
        wait_until(lambda: self.hears(word), seconds=_WAIT_SECONDS)


def _train(run: str, directory: Path, env: dict[str, str]) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ.update(env)
    import torch

    import shardkeep as sk

    model = torch.nn.Linear(8, 8)
    job = Training(directory)
    keeper = sk.Checkpointer(run, model=model, signals=False)
    step = keeper.resume()
    job.tell("ready")
    job.wait_for("go")
    while not job.hears("stop"):
        step += 1
        keeper.step(step, metrics={"loss": 1 / step})
        time.sleep(0.01)
    keeper.close()
