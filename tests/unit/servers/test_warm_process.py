"""Processes that are forked from a warm one: what makes hundreds of them cheap."""

from __future__ import annotations

import gc
import sys
from multiprocessing.connection import Connection

from tests.warm_process import forkserver


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
