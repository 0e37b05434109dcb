from __future__ import annotations

from typing import Any

import pytest
import torch

from shardkeep.errors import FormatError, UnsupportedValue
from shardkeep.format.value_types import value_type_tagged
from shardkeep.format.values import decode_value, encode_value, register_value_type
from shardkeep.pytorch.tensors import byte_view
from shardkeep.pytorch.value_types import register_torch_values

register_torch_values()


@pytest.mark.parametrize(
    "value", [torch.Size([2, 3]), torch.float8_e4m3fn, torch.device("cuda", 1), {"s": [torch.Size([])]}], ids=str
)
def test_torchs_types_round_trip(value: Any) -> None:
    found = decode_value(encode_value(value))
    assert type(found) is type(value)
    assert found == value


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(2**24 + 1, dtype=torch.float64),
        torch.arange(6).reshape(2, 3).t(),
        torch.ones(3, dtype=torch.bfloat16).to(torch.float8_e5m2),
        torch.zeros(0, 4),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.nn.Parameter(torch.ones(2)),
    ],
    ids=["float64", "transposed", "float8", "empty", "conjugate", "parameter"],
)
def test_tensors_round_trip_bit_for_bit(tensor: torch.Tensor) -> None:
    found = decode_value(encode_value(tensor))
    assert isinstance(found, torch.Tensor)
    assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
    assert bytes(byte_view(found)) == bytes(byte_view(tensor.detach().resolve_conj().contiguous()))


def test_a_tensor_without_memory_is_an_unsupported_value() -> None:
    with pytest.raises(UnsupportedValue, match="meta"):
        encode_value(torch.ones(2, device="meta"))


@pytest.mark.parametrize(
    "plain",
    [{"dtype": "uint8", "shape": [3], "data": b"xy"}, {"dtype": "uint8", "shape": [-1], "data": b""}, {"dtype": "x"}],
    ids=str,
)
def test_what_no_tensor_was_stored_as_is_a_format_error(plain: Any) -> None:
    register_value_type("torch.Tensor", torch.Tensor, lambda _: plain, value_type_tagged("torch.Tensor").from_plain)
    try:
        encoded = encode_value(torch.ones(1))
    finally:
        register_torch_values()
    with pytest.raises(FormatError):
        decode_value(encoded)
