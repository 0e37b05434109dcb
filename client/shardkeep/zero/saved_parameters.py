"""What autograd keeps of gathered parameters: where in their unit it lies, not the memory itself.

Backward gathers a unit at the moment it needs it, however it comes there: by whichever output of the module, in a
second backward, or in one of the graph's that checkpoints run. Activations are kept as autograd itself keeps them, or
by the hooks that are active outside, such as a checkpoint's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from shardkeep.zero.autograd_internals import active_saving_hooks, can_hook_saving, version_of


class GatheredMemory(Protocol):
    """Memory of parameters that comes and goes."""

    dtype: torch.dtype
    generation: int
    """Goes up when the parameters are changed."""

    def view(self, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> torch.Tensor:
        """Part of it while it is whole."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """Part of a parameter."""

    keeper: object
    memory: GatheredMemory
    generation: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class _Plain:
    """Anything else, with what autograd would check of it."""

    tensor: torch.Tensor
    version: int


class SavedParameters:
    """Hooks for tensors that autograd saves, active between `enter` and `leave`."""

    def __init__(self, use: Callable[[GatheredMemory], None]) -> None:
        """`use` makes a memory whole. Called in backward."""
        self._use = use
        self._whole: dict[int, GatheredMemory] = {}
        self._is_uncompiled = False

    def is_whole(self, flat: torch.Tensor, memory: GatheredMemory) -> None:
        """From now on what lies in `flat` is part of the memory."""
        self._whole[flat.untyped_storage().data_ptr()] = memory

    def is_freed(self, flat: torch.Tensor) -> None:
        """From now on nothing new lies in it."""
        self._whole.pop(flat.untyped_storage().data_ptr(), None)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in gathered memory."""
        return bool(self._whole) and tensor.untyped_storage().data_ptr() in self._whole

    def enter(self) -> torch.autograd.graph.saved_tensors_hooks | None:
        """Activates them, to be given to `leave`; None where they are active already or can have no effect."""
        if not torch.is_grad_enabled() or not can_hook_saving():
            return None
        outside = active_saving_hooks()
        if outside is not None and getattr(outside[0], "saves_parameters_for", None) is self:
            return None
        hooks = torch.autograd.graph.saved_tensors_hooks(*self._hooks(outside))
        hooks.__enter__()
        return hooks

    def leave(self, hooks: torch.autograd.graph.saved_tensors_hooks | None) -> None:
        """Ends what `enter` began."""
        if hooks is not None:
            hooks.__exit__(None, None, None)

    def _hooks(self, outside: tuple[Callable[..., Any], Callable[..., Any]] | None) -> tuple[Any, Any]:
        def pack(tensor: torch.Tensor) -> Any:
            memory = self._whole.get(tensor.untyped_storage().data_ptr()) if _is_plain(tensor) else None
            if memory is not None and memory.dtype == tensor.dtype:
                offset = int(tensor.storage_offset())
                return _Place(self, memory, memory.generation, tuple(tensor.shape), tensor.stride(), offset)
            return outside[0](tensor) if outside is not None else _Plain(tensor, version_of(tensor))

        def unpack(saved: Any) -> torch.Tensor:
            if isinstance(saved, _Place) and saved.keeper is self:
                return self._restore(saved)
            if isinstance(saved, _Plain):
                if version_of(saved.tensor) != saved.version:
                    raise _changed(tuple(saved.tensor.shape))
                return saved.tensor
            assert outside is not None
            restored: torch.Tensor = outside[1](saved)
            return restored

        pack.saves_parameters_for = self  # type: ignore[attr-defined]
        if not self._is_uncompiled:  # by their code, so for all that follow
            self._is_uncompiled = True
            torch.compiler.disable(pack, recursive=False)
            torch.compiler.disable(unpack, recursive=False)
        return pack, unpack

    def _restore(self, saved: _Place) -> torch.Tensor:
        if saved.memory.generation != saved.generation:
            raise _changed(saved.size)
        self._use(saved.memory)
        return saved.memory.view(saved.size, saved.stride, saved.offset)


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided


def _changed(shape: tuple[int, ...]) -> RuntimeError:
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of "
        f"shape {shape} was written between forward and backward"
    )
