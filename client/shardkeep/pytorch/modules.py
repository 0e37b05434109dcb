"""The named state of a module: its parameters, persistent buffers and extra state, without the wrappers' names.

Wrappers (DDP, torch.compile's OptimizedModule, activation checkpointing) are known by type, never by the text of a
name, so a module that the user called `module` keeps that part.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from shardkeep.errors import StateError
from shardkeep.format.names import join_name, plain_text
from shardkeep.format.segments import SliceKind
from shardkeep.pytorch.pieces import Parts

_WRAPPERS = (
    ("torch.nn.parallel.distributed", "DistributedDataParallel", "module"),
    ("torch._dynamo.eval_frame", "OptimizedModule", "_orig_mod"),
    ("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", "ActivationWrapper", "_checkpoint_wrapped_module"),
)
_FSDP1 = ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel")
_HIDDEN = "_checkpoint_wrapped_module"
_EXTRA_STATE = "_extra_state"


@dataclass(frozen=True, slots=True, eq=False)
class NamedModule:
    """A module of the tree: `prefix` as state_dict() spells it, `parts` without wrappers."""

    prefix: str
    parts: Parts
    module: nn.Module


@dataclass(frozen=True, slots=True, eq=False)
class NamedTensor:
    """A parameter or buffer; `key` is its name in state_dict()."""

    parts: Parts
    key: str
    tensor: torch.Tensor
    kind: SliceKind


@dataclass(frozen=True, slots=True, eq=False)
class NamedExtra:
    """What a module's get_extra_state() gave, or another value a hook put in (then `owner` is None)."""

    parts: Parts
    key: str
    value: Any
    owner: nn.Module | None


@dataclass(slots=True)
class ModuleState:
    """The state of a module now.

    `computed`: keys whose tensors belong to no module, so that only load_state_dict() can write them back.
    """

    tensors: list[NamedTensor] = field(default_factory=list)
    extras: list[NamedExtra] = field(default_factory=list)
    computed: set[str] = field(default_factory=set)


def named_modules(module: nn.Module) -> Iterator[NamedModule]:
    """Every module of the tree, shared ones once for each of their names. StateError for FSDP1."""
    nodes: dict[str, NamedModule] = {}
    for path, found in module.named_modules(remove_duplicate=False):
        nodes[path] = _named(path, found, nodes)
        yield nodes[path]


def _named(path: str, module: nn.Module, nodes: dict[str, NamedModule]) -> NamedModule:
    """The module at a path of torch's; the one that holds it comes before it."""
    if _is_a(module, *_FSDP1):
        raise StateError(
            f"{path or 'the module'} is an FSDP1 FullyShardedDataParallel, whose state_dict() runs collectives; "
            "use fully_shard (FSDP2) instead"
        )
    if not path:
        return NamedModule("", (), module)
    holder_path, _, name = path.rpartition(".")
    holder = nodes[holder_path]
    if name != _inner_name(holder.module):
        return NamedModule(f"{holder.prefix}{name}.", (*holder.parts, name), module)
    # Activation checkpointing takes its own part out of the keys of state_dict(); the other wrappers leave theirs.
    prefix = holder.prefix if name == _HIDDEN else f"{holder.prefix}{name}."
    return NamedModule(prefix, holder.parts, module)


def _inner_name(module: nn.Module) -> str | None:
    for module_name, class_name, attribute in _WRAPPERS:
        if _is_a(module, module_name, class_name):
            return attribute
    return None


def _is_a(module: nn.Module, module_name: str, class_name: str) -> bool:
    """Whether it is an instance, without importing: where the class was never imported, nothing can be one."""
    home = sys.modules.get(module_name)
    cls = getattr(home, class_name, None) if home is not None else None
    return cls is not None and isinstance(module, cls)


def named_parameters(module: nn.Module) -> Iterator[tuple[Parts, nn.Parameter]]:
    """Every parameter as registered now, under each of its names."""
    for node in named_modules(module):
        for name, parameter in node.module.named_parameters(recurse=False, remove_duplicate=False):
            yield (*node.parts, name), parameter


def module_state(module: nn.Module) -> ModuleState:
    """The state now. FSDP2's hook reshards first, so the tensors are the live shards. No collective runs."""
    nodes = list(named_modules(module))
    # A wrapper and what it wraps can have the same prefix: the inner one comes later and owns the tensors.
    by_prefix = {node.prefix: node for node in nodes}
    state = ModuleState()
    found: dict[str, Any] = module.state_dict(keep_vars=True)
    registered = _Registered(nodes)
    for key, value in found.items():
        node, leaf = _owner(by_prefix, key)
        parts = (*node.parts, *leaf.split("."))
        if leaf == _EXTRA_STATE and _has_extra_state(node.module):
            state.extras.append(NamedExtra(parts, key, value, node.module))
        elif isinstance(value, torch.Tensor):
            state.tensors.append(NamedTensor(parts, key, value, _kind(value)))
            if value not in registered:
                state.computed.add(key)
        else:
            state.extras.append(NamedExtra(parts, key, value, None))
            state.computed.add(key)
    _check_distinct(state)
    return state


class _Registered:
    """The memory of the parameters and buffers the modules hold."""

    def __init__(self, nodes: list[NamedModule]) -> None:
        held: list[torch.Tensor] = []
        for node in nodes:
            held += node.module.parameters(recurse=False)
            held += node.module.buffers(recurse=False)
        self._identities = {id(tensor) for tensor in held}
        self._storages = {storage for tensor in held if (storage := _storage_address(tensor)) is not None}

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._identities or _storage_address(tensor) in self._storages


def _storage_address(tensor: torch.Tensor | None) -> int | None:
    if tensor is None or type(tensor) not in (torch.Tensor, nn.Parameter, nn.Buffer) or tensor.layout != torch.strided:
        return None
    return tensor.untyped_storage().data_ptr() or None


def _owner(by_prefix: dict[str, NamedModule], key: str) -> tuple[NamedModule, str]:
    """The module whose prefix is the longest that `key` starts with, and the rest of the key."""
    end = len(key)
    while (dot := key.rfind(".", 0, end)) >= 0:
        node = by_prefix.get(key[: dot + 1])
        if node is not None:
            return node, key[dot + 1 :]
        end = dot
    return by_prefix[""], key


def _has_extra_state(module: nn.Module) -> bool:
    return getattr(type(module), "get_extra_state", None) is not nn.Module.get_extra_state


def _kind(tensor: torch.Tensor) -> SliceKind:
    if not isinstance(tensor, nn.Parameter):
        return SliceKind.BUFFER
    return SliceKind.PARAMETER if tensor.requires_grad else SliceKind.FROZEN


def _check_distinct(state: ModuleState) -> None:
    keys: dict[Parts, str] = {}
    entries: list[NamedTensor | NamedExtra] = [*state.tensors, *state.extras]
    for entry in entries:
        other = keys.setdefault(entry.parts, entry.key)
        if other != entry.key:
            raise StateError(
                f"{other!r} and {entry.key!r} of state_dict() are both named {plain_text(join_name(entry.parts))!r} "
                "once wrappers are removed; rename one of the modules"
            )
