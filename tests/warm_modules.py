"""What a process that others are forked from has loaded. Imported once, by the fork server.

What it has allocated is left alone by garbage collection, in it and in what is forked from it: a collection would look
at half a million objects, and so copy every page they are on, in each process, at its end at the latest.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
from typing import Final

MODULES: Final = (
    "shardkeep.cli.main",
    "shardkeep.store.connect",
    "shardkeep_service.cli.main",
    "shardkeep_service.cli.serving",
    "shardkeep_service.cli.worker",
    "uvicorn.protocols.http.httptools_impl",
    "pytest",  # which the modules import whose functions ranks run
    "torch",
    "torch.distributed.fsdp",
    "torch.optim",
    "torch._dynamo",  # what the first step of any optimizer imports, in 2 s
    "shardkeep.pytorch.checkpointer",
    "shardkeep.zero",
)
"""What is not installed is left out: the S3 tests run without torch."""


def _load() -> None:
    gc.disable()
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.enable()
    gc.collect()
    gc.freeze()


_load()
