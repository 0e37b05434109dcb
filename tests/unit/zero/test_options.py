"""Options that mean nothing are refused before the model is touched."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from shardkeep.errors import ConfigurationError
from shardkeep.zero import ShardedOptimizer


@pytest.mark.parametrize(
    ("option", "value"), [("stage", 4), ("layout", "round"), ("reduce_op", "median"), ("offload", "nvme")]
)
def test_an_option_of_no_known_value_is_refused_with_those_there_are(option: str, value: Any) -> None:
    model = nn.Linear(2, 2)
    before = model.weight.data_ptr()

    with pytest.raises(ConfigurationError, match=f"{option}='?{value}'? is not one of"):
        ShardedOptimizer(model, torch.optim.SGD, lr=0.1, **{option: value})

    assert model.weight.data_ptr() == before
