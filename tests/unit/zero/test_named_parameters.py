"""Names, groups, and models and optimizers that cannot be sharded: what is refused, and in which words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from shardkeep.errors import ConfigurationError
from shardkeep.zero.named_parameters import check_inner, check_model, groups_of, named, names_of


class FullyShardedDataParallel(nn.Module):
    """Called as FSDP1's wrapper, which does not run on a CPU."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


class DataParallelOfMine(FullyShardedDataParallel):
    """A class derived of it."""


class Marked(torch.Tensor):
    """A tensor subclass."""


def model() -> nn.Sequential:
    """Two layers with one weight."""
    found = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    found[1].weight = found[0].weight
    return found


@pytest.mark.parametrize("wrapper", [FullyShardedDataParallel, DataParallelOfMine])
def test_wrapped_models_are_refused_with_the_place_of_the_wrapper(wrapper: Any) -> None:
    check_model(model())
    with pytest.raises(ConfigurationError, match="the model is wrapped in FullyShardedDataParallel"):
        check_model(wrapper(model()))
    with pytest.raises(ConfigurationError, match="inside is wrapped in FullyShardedDataParallel"):
        check_model(nn.ModuleDict({"inside": wrapper(model())}))


def test_parameters_that_are_not_plain_are_refused_by_name() -> None:
    def with_weight(weight: torch.Tensor, *, requires_grad: bool = True) -> nn.Module:
        found = nn.ParameterDict()
        found["odd"] = nn.Parameter(weight, requires_grad=requires_grad)
        return found

    with pytest.raises(ConfigurationError, match="odd is an expanded view"):
        check_model(with_weight(torch.ones(1).expand(4)))
    with pytest.raises(ConfigurationError, match=r"odd is torch\.int64"):
        check_model(with_weight(torch.ones(4, dtype=torch.int64), requires_grad=False))
    with pytest.raises(ConfigurationError, match="odd is a Marked"):
        check_model(with_weight(torch.ones(4).as_subclass(Marked)))
    check_model(with_weight(torch.ones(4, 2).t()))
    check_model(with_weight(torch.ones(1).expand(1, 1)))


def test_matrix_optimizers_need_the_whole_layout_and_some_cannot_be_wrapped() -> None:
    for inner in (torch.optim.Muon, torch.optim.Adafactor):
        with pytest.raises(ConfigurationError, match=f'{inner.__name__} .* layout="whole"'):
            check_inner(inner, "flat")
        check_inner(inner, "whole")
    for other in (torch.optim.LBFGS, torch.optim.SparseAdam):
        with pytest.raises(ConfigurationError, match=other.__name__):
            check_inner(other, "whole")
    check_inner(torch.optim.AdamW, "flat")


def test_tied_parameters_have_all_their_names_the_first_registered_first() -> None:
    found = model()

    names = names_of(found)

    assert names[id(found[0].weight)] == ["0.weight", "1.weight"]
    assert names[id(found[1].bias)] == ["1.bias"]


def test_groups_are_as_torch_optim_takes_them() -> None:
    found = model()
    first, second = found[0].parameters(), [("1.bias", found[1].bias)]

    assert groups_of(found, None) == [{"params": list(found.parameters())}]
    assert groups_of(found, first) == [{"params": [found[0].weight, found[0].bias]}]
    assert groups_of(found, [{"params": second, "lr": 3}, {"params": found[0].bias}]) == [
        {"params": [found[1].bias], "lr": 3},
        {"params": [found[0].bias]},
    ]


def test_a_parameter_of_another_model_is_refused_with_its_group_and_shape() -> None:
    found = model()

    with pytest.raises(ConfigurationError, match=r"parameter 1 of group 2, of shape \(3,\), is not one of the model's"):
        named({"params": [found[0].bias, nn.Parameter(torch.ones(3))]}, names_of(found), "group 2")
    assert named({"params": [found[1].weight, found[0].bias]}, names_of(found), "group 0") == ["0.weight", "0.bias"]
