"""Processes that are forked from a warm one: what makes hundreds of them cheap."""

from __future__ import annotations

import gc
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from tests.waiting import wait_until
from tests.warm_process import forkserver

STARTING = """
import os, signal, sys
from pathlib import Path
from tests.warm_process import WarmProcess
here = Path(sys.argv[1])
serve = ("serve", "--data", str(here / "service"), "--port", "0")
started = WarmProcess("shardkeep-service", serve, env=dict(os.environ), stdout=here / "out", stderr=here / "err")
print(started.pid, flush=True)
signal.pause()
"""


def _tell(pipe: Connection) -> None:
    pipe.send(("shardkeep_service.cli.serving" in sys.modules, gc.get_freeze_count()))


def test_a_forked_process_has_its_modules_and_collects_no_garbage_in_them() -> None:
    here, there = forkserver().Pipe()
    process = forkserver().Process(target=_tell, args=(there,))
    process.start()
    is_loaded, frozen = here.recv()
    process.join(60)
    assert process.exitcode == 0
    assert is_loaded
    assert frozen > 100_000


def test_what_was_started_ends_with_who_started_it_however_that_ends(tmp_path: Path) -> None:
    tests = subprocess.Popen([sys.executable, "-c", STARTING, tmp_path], stdout=subprocess.PIPE, text=True)
    assert tests.stdout is not None
    started = int(tests.stdout.readline())
    err = tmp_path / "err"
    wait_until(lambda: err.exists() and "listening" in err.read_text())
    tests.kill()
    tests.wait(60)
    tests.stdout.close()
    wait_until(lambda: not Path(f"/proc/{started}/cmdline").exists())
