"""The hooks by which an optimizer follows its model. A copy of the model has them too, and is none of its concern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from shardkeep.errors import ConfigurationError
from shardkeep.zero.autograd_internals import version_of


def watch_forward(model: nn.Module, before: Callable[[], None], after: Callable[[Any], None]) -> list[RemovableHandle]:
    """`before` each forward, ahead of all hooks there are; `after` it with the output."""

    def before_forward(called: nn.Module, _arguments: Any) -> None:
        if called is model:
            before()

    def after_forward(called: nn.Module, _arguments: Any, output: Any) -> None:
        if called is model:
            after(output)

    return [
        model.register_forward_pre_hook(torch.compiler.disable(before_forward), prepend=True),
        model.register_forward_hook(torch.compiler.disable(after_forward)),
    ]


def watch_loads(model: nn.Module, after: Callable[[list[nn.Parameter]], None]) -> list[RemovableHandle]:
    """`after` a load_state_dict() of the model or any part of it, module by module with what was written of its own.

    ConfigurationError for a load that would put other parameters in their place.
    """
    handles = []
    for module in model.modules():
        if next(module.parameters(recurse=False), None) is not None:
            handles += _watch_load(module, after)
    return handles


def _watch_load(module: nn.Module, after: Callable[[list[nn.Parameter]], None]) -> list[RemovableHandle]:
    versions: dict[str, int] = {}

    def before_load(loaded: nn.Module, _state: Any, _prefix: str, metadata: dict[str, Any], *_rest: Any) -> None:
        if loaded is not module:
            return
        versions.update((name, version_of(one)) for name, one in module.named_parameters(recurse=False))
        if metadata.get("assign_to_params_buffers"):
            raise ConfigurationError(
                "load_state_dict(assign=True) would replace parameters that ShardedOptimizer trains; leave it out"
            )

    def after_load(loaded: nn.Module, _keys: Any) -> None:
        if loaded is module:
            own = module.named_parameters(recurse=False)
            after([one for name, one in own if versions.get(name) != version_of(one)])

    return [
        module.register_load_state_dict_pre_hook(before_load),
        module.register_load_state_dict_post_hook(after_load),
    ]


def watch_state(
    module: nn.Module, hold: Callable[[nn.Module], None], let_go: Callable[..., None]
) -> list[RemovableHandle]:
    """`hold` before a module's own parameters are copied out or written; `let_go` after, with whether it `is_written`.

    What is copied out does not share memory with the parameters.
    """

    def before_state(saved: nn.Module, _prefix: str, keep_vars: bool) -> None:
        if saved is module and not keep_vars:
            hold(module)

    def after_state(saved: nn.Module, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
        if saved is module:
            _copy_out(module, state, prefix)
            let_go(module, is_written=False)

    def before_load(loaded: nn.Module, *_rest: Any) -> None:
        if loaded is module:
            hold(module)

    def after_load(loaded: nn.Module, _keys: Any) -> None:
        if loaded is module:
            let_go(module, is_written=True)

    return [
        module.register_state_dict_pre_hook(before_state),
        module.register_state_dict_post_hook(after_state),
        module.register_load_state_dict_pre_hook(before_load),
        module.register_load_state_dict_post_hook(after_load),
    ]


def _copy_out(module: nn.Module, state: dict[str, Any], prefix: str) -> None:
    for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
        held = state.get(prefix + name)
        if isinstance(held, torch.Tensor) and held is not parameter:
            state[prefix + name] = held.clone()
