"""The few things of autograd that torch has no public name for, in one place."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.autograd import Variable


def in_backward() -> bool:
    """Whether autograd runs a graph on this thread now."""
    return int(torch._C._current_graph_task_id()) != -1  # noqa: SLF001


def at_end_of_backward(call: Callable[[], None]) -> None:
    """Calls it when the graph that runs now has run, on the thread that started it; not if it raises."""
    Variable._execution_engine.queue_callback(call)  # noqa: SLF001


def version_of(tensor: torch.Tensor) -> int:
    """How often it was written in place."""
    return tensor._version  # noqa: SLF001
