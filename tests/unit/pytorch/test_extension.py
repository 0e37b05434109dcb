from __future__ import annotations

import pytest
import torch

from shardkeep.errors import ConfigurationError, StateError
from shardkeep.format.regions import Region
from shardkeep.pytorch.extension import TorchLeaves, current_world, leaf_adapters, unwrap_value
from shardkeep.pytorch.marks import PerRank, Sharded
from shardkeep.pytorch.tensors import byte_view


def test_the_adapter_takes_tensors_of_every_kind_and_nothing_else() -> None:
    (adapter,) = leaf_adapters()
    assert adapter.accepts(torch.ones(2))
    assert adapter.accepts(Sharded(torch.ones(2), shape=(4,), offset=(0,)))
    assert not adapter.accepts([1])
    assert not adapter.accepts(PerRank(1))


def test_a_leaf_gives_regions_and_bytes() -> None:
    leaf = TorchLeaves().leaf(Sharded(torch.arange(6.0).reshape(3, 2).t(), shape=(4, 3), offset=(2, 0)))
    assert (leaf.dtype, leaf.shape, leaf.replica) == ("float32", (4, 3), (0, 1))
    (piece,) = leaf.pieces
    out = bytearray(24)
    piece.fill(0, memoryview(out))
    assert piece.region == Region((2, 0), (2, 3))
    assert torch.frombuffer(out, dtype=torch.float32).tolist() == [0, 2, 4, 1, 3, 5]
    assert TorchLeaves().leaf(torch.ones(2)).replica is None


def test_a_target_is_the_live_memory_where_that_is_row_major_and_casts_where_asked() -> None:
    live = torch.zeros(3, dtype=torch.bfloat16)
    (destination,) = TorchLeaves().target(live).destinations
    assert destination.out is not None
    assert torch.frombuffer(destination.out, dtype=torch.bfloat16).data_ptr() == live.data_ptr()
    destination.assign(byte_view(torch.tensor([1.0, 2.0, 3.0])), "float32")
    assert live.tolist() == [1, 2, 3]
    turned = torch.zeros(2, 3).t()
    (strided,) = TorchLeaves().target(turned).destinations
    assert strided.out is None
    strided.assign(byte_view(torch.arange(6.0)), "float32")
    assert turned.flatten().tolist() == list(range(6))


def test_an_expanded_tensor_is_no_target() -> None:
    with pytest.raises(StateError, match="clone"):
        TorchLeaves().target(torch.zeros(1).expand(4))


def test_created_tensors_share_the_memory_that_is_read_into() -> None:
    made, memory = TorchLeaves().create("float8_e5m2", (2, 2))
    memory[:] = bytes([60] * 4)
    assert isinstance(made, torch.Tensor)
    assert made.dtype is torch.float8_e5m2
    assert made.float().unique().tolist() == [1.0]
    with pytest.raises(ConfigurationError, match="newer torch"):
        TorchLeaves().create("float3_unheard_of", (2,))


def test_per_rank_values_are_unwrapped() -> None:
    assert unwrap_value(PerRank(3)) == (3, True)
    assert unwrap_value(3) == (3, False)


def test_without_a_process_group_there_is_no_world() -> None:
    assert current_world() is None
