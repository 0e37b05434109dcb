"""The verdict of a resume: exact, inexact with every reason, or fresh; and the environment that exactness depends on.

It does not vouch for kernels that are nondeterministic by themselves.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from shardkeep.store.checkpoint import Checkpoint

Verdict = Literal["exact", "inexact", "fresh"]

_COMPARED: Final = {
    "world_size": "world size",
    "torch": "torch version",
    "device": "device kind",
    "threads": "thread count",
    "interop_threads": "inter-op thread count",
    "deterministic_algorithms": "torch.use_deterministic_algorithms",
    "cudnn_deterministic": "cudnn.deterministic",
    "cudnn_benchmark": "cudnn.benchmark",
    "float32_matmul_precision": "float32 matmul precision",
    "cublas_workspace": "CUBLAS_WORKSPACE_CONFIG",
}
"""What must be equal for a resume to be exact, with its name for people. The rest is only recorded."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a keeper continues from: `checkpoint` (None only if fresh), and in `reasons` each difference if inexact."""

    step: int
    checkpoint: Checkpoint | None
    verdict: Verdict
    reasons: tuple[str, ...] = ()

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, reasons: list[str]) -> Resumed:
        """Exact if there is no reason against it."""
        return cls(checkpoint.step, checkpoint, "inexact" if reasons else "exact", tuple(reasons))


def environment(world_size: int) -> dict[str, Any]:
    """What this rank computes with."""
    return {
        "world_size": world_size,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "device": device_kind(),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
    }


def environment_differences(saved: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Each difference that makes a resume inexact, in words; what the checkpoint does not tell counts as one."""
    return [
        f"{name} was {saved.get(key, 'not recorded')} and is {here[key]}"
        for key, name in _COMPARED.items()
        if saved.get(key) != here[key]
    ]


def device_kind() -> str:
    """The accelerator in use and its model, else the CPU's vector level (kernels and their sums differ by it)."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return f"cuda {torch.cuda.get_device_name()}"
    if torch.backends.mps.is_available():
        return "mps"
    return f"cpu {torch.backends.cpu.get_cpu_capability()}"
