from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from shardkeep.errors import StateError
from shardkeep.format.segments import SliceKind
from shardkeep.pytorch.modules import module_state, named_parameters


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(2, 2)  # a user's own attribute that reads like a wrapper's
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("scratch", torch.zeros(3), persistent=False)
        self.module.bias.requires_grad_(False)


PLAIN = [
    ("0", "module", "weight"),
    ("0", "module", "bias"),
    ("0", "norm", "weight"),
    ("0", "norm", "bias"),
    ("0", "norm", "running_mean"),
    ("0", "norm", "running_var"),
    ("0", "norm", "num_batches_tracked"),
    ("1", "weight"),
    ("1", "bias"),
]


def plain() -> nn.Module:
    return nn.Sequential(Block(), nn.Linear(2, 1))


def compiled() -> nn.Module:
    module: Any = torch.compile(plain(), backend="eager")
    assert isinstance(module, nn.Module)
    return module


def checkpointed() -> nn.Module:
    return checkpoint_wrapper(nn.Sequential(checkpoint_wrapper(Block()), nn.Linear(2, 1)))


def mixed() -> nn.Module:
    block: Any = torch.compile(Block(), backend="eager")
    inner = checkpoint_wrapper(block)
    module: Any = torch.compile(nn.Sequential(inner, nn.Linear(2, 1)), backend="eager")
    assert isinstance(module, nn.Module)
    return module


@pytest.mark.parametrize("build", [plain, compiled, checkpointed, mixed])
def test_E135_wrappers_are_removed_by_type_and_like_named_modules_stay(build: Any) -> None:
    state = module_state(build())
    assert [entry.parts for entry in state.tensors] == PLAIN
    assert not state.computed


def test_kinds_tell_parameters_frozen_ones_and_buffers() -> None:
    kinds = {entry.parts: entry.kind for entry in module_state(plain()).tensors}
    assert kinds[("0", "module", "weight")] is SliceKind.PARAMETER
    assert kinds[("0", "module", "bias")] is SliceKind.FROZEN
    assert kinds[("0", "norm", "running_mean")] is SliceKind.BUFFER


def test_parameters_are_named_as_in_the_state() -> None:
    names = [parts for parts, _ in named_parameters(mixed())]
    assert names == [parts for parts in PLAIN if parts[-1] in ("weight", "bias")]


def test_a_shared_module_is_listed_under_each_of_its_names() -> None:
    shared = nn.Linear(2, 2, bias=False)
    names = [parts for parts, _ in named_parameters(nn.ModuleDict({"a": shared, "b": shared}))]
    assert names == [("a", "weight"), ("b", "weight")]


def test_tensors_are_the_live_ones() -> None:
    module = plain()
    live = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    assert {id(entry.tensor) for entry in module_state(module).tensors} <= live


class Renaming(nn.Module):
    """A module whose hook gives a tensor of its own making."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))
        self.register_state_dict_post_hook(_double)  # type: ignore[no-untyped-call]


def _double(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    state[f"{prefix}doubled"] = state[f"{prefix}weight"] * 2
    state[f"{prefix}first_row"] = state[f"{prefix}weight"][0]
    state[f"{prefix}note"] = "text"


def test_computed_entries_are_known_as_such_and_views_of_parameters_are_not() -> None:
    state = module_state(nn.Sequential(Renaming()))
    assert state.computed == {"0.doubled", "0.note"}
    assert [extra.parts for extra in state.extras] == [("0", "note")]


def test_two_keys_that_get_one_name_are_an_error() -> None:
    wrapped: Any = torch.compile(nn.ModuleDict({"y": nn.Linear(1, 1)}), backend="eager")
    wrapped._modules["y"] = nn.Linear(1, 1)
    with pytest.raises(StateError, match=r"both named 'x\.y\.weight'"):
        module_state(nn.ModuleDict({"x": wrapped}))
