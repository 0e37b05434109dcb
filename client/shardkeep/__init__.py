"""Shardkeep: a checkpoint store for sharded training.

Names resolve on first use, so that `import shardkeep` is fast and imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardkeep import errors as errors
    from shardkeep.errors import ShardkeepError as ShardkeepError
    from shardkeep.store.checkpoint import Checkpoint as Checkpoint
    from shardkeep.store.checkpoint import ReadRequest as ReadRequest
    from shardkeep.store.connect import Client as Client
    from shardkeep.store.connect import connect as connect
    from shardkeep.store.load_report import LoadReport as LoadReport
    from shardkeep.store.run import Run as Run
    from shardkeep.store.save_handle import SaveHandle as SaveHandle
    from shardkeep.store.world import World as World

__version__ = "0.1.0"

_HOMES = {
    "Checkpoint": "shardkeep.store.checkpoint",
    "Checkpointer": "shardkeep.pytorch",
    "Client": "shardkeep.store.connect",
    "LoadReport": "shardkeep.store.load_report",
    "PerRank": "shardkeep.pytorch",
    "ReadRequest": "shardkeep.store.checkpoint",
    "ResumableSampler": "shardkeep.pytorch",
    "Run": "shardkeep.store.run",
    "SaveHandle": "shardkeep.store.save_handle",
    "Sharded": "shardkeep.pytorch",
    "ShardkeepError": "shardkeep.errors",
    "World": "shardkeep.store.world",
    "connect": "shardkeep.store.connect",
    "mark": "shardkeep.pytorch",
}

__all__ = [
    "Checkpoint",
    "Checkpointer",
    "Client",
    "LoadReport",
    "PerRank",
    "ReadRequest",
    "ResumableSampler",
    "Run",
    "SaveHandle",
    "Sharded",
    "ShardkeepError",
    "World",
    "connect",
    "errors",
    "mark",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("shardkeep.errors")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
