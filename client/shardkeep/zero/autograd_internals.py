"""The few things of autograd that torch has no public name for, in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Variable


def in_backward() -> bool:
    """Whether autograd runs a graph on this thread now."""
    return int(torch._C._current_graph_task_id()) != -1  # noqa: SLF001


def at_end_of_backward(call: Callable[[], None]) -> None:
    """Calls it when the graph that runs now has run, on the thread that started it; not if it raises."""
    Variable._execution_engine.queue_callback(call)  # noqa: SLF001


def is_accumulating(parameter: torch.Tensor) -> bool:
    """Whether the graph that runs now adds to the gradient of a leaf: torch.autograd.grad() does not."""
    return _executes(torch.autograd.graph.get_gradient_edge(parameter).node)


def accumulates() -> bool:
    """Inside a tensor's hook: whether the graph that runs adds to the gradients of the leaves below."""
    functions: Any = torch._C  # noqa: SLF001
    node: Any = functions._current_autograd_node()  # noqa: SLF001
    while (below := next((one for one, _ in node.next_functions if one is not None), None)) is not None:
        node = below
    return _executes(node)


def _executes(leaf: Any) -> bool:
    functions: Any = torch._C  # noqa: SLF001
    try:
        return bool(functions._will_engine_execute_node(leaf))  # noqa: SLF001
    except RuntimeError:  # what it says of leaves whose gradients torch.autograd.grad() was asked for
        return False


def version_of(tensor: torch.Tensor) -> int:
    """How often it was written in place."""
    return tensor._version  # noqa: SLF001


def active_saving_hooks() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """The (pack, unpack) hooks for tensors that autograd saves now."""
    found: tuple[Callable[..., Any], Callable[..., Any]] | None = torch._C._autograd._top_saved_tensors_default_hooks(  # noqa: SLF001
        True
    )
    return found


def can_hook_saving() -> bool:
    """Whether such hooks may be set here: under torch.func they may not."""
    functions: Any = torch._C._autograd  # noqa: SLF001
    return bool(functions._saved_tensors_hooks_is_enabled())  # noqa: SLF001
