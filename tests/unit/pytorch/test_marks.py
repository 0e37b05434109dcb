from __future__ import annotations

import pytest
import torch

from shardkeep.errors import ConfigurationError
from shardkeep.format.regions import Region
from shardkeep.pytorch.marks import PerRank, Sharded, mark, mark_of


def test_a_mark_stays_with_its_parameter() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    assert mark(parameter, shape=(4, 3), offset=(2, 0)) is parameter
    assert mark_of(parameter) == ((4, 3), Region((2, 0), (2, 3)))
    assert mark_of(torch.zeros(2)) is None


@pytest.mark.parametrize(
    ("shape", "offset"), [((4, 3), (3, 0)), ((4,), (0,)), ((4, 3), (-1, 0)), ((4, 3), (0,))], ids=str
)
def test_a_shard_that_does_not_fit_is_an_error(shape: tuple[int, ...], offset: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError):
        mark(torch.zeros(2, 3), shape=shape, offset=offset)
    with pytest.raises(ConfigurationError):
        Sharded(torch.zeros(2, 3), shape=shape, offset=offset)


def test_a_marked_tensor_that_was_resized_is_an_error() -> None:
    tensor = mark(torch.zeros(2, 3), shape=(4, 3), offset=(0, 0))
    tensor.resize_(1, 3)
    with pytest.raises(ConfigurationError, match="mark it again"):
        mark_of(tensor)


def test_sharded_takes_tensors_only() -> None:
    with pytest.raises(TypeError):
        Sharded([1, 2], shape=(4,), offset=(0,))  # type: ignore[arg-type]
    assert repr(PerRank(3)) == "PerRank(3)"
