"""What Shardkeep knows about torch: training state in and out, the Checkpointer, the sampler.

Names resolve on first use, so that importing one part imports no other.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "Checkpointer": "shardkeep.pytorch.checkpointer",
    "PerRank": "shardkeep.pytorch.marks",
    "ResumableSampler": "shardkeep.pytorch.sampler",
    "Sharded": "shardkeep.pytorch.marks",
    "TrainingState": "shardkeep.pytorch.capture",
    "mark": "shardkeep.pytorch.marks",
}

__all__ = [
    "Checkpointer",
    "PerRank",
    "ResumableSampler",
    "Sharded",
    "TrainingState",
    "mark",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
