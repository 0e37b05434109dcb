"""Torch's own types among values: small tensors, sizes, dtypes and devices, as plain data."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from shardkeep.errors import FormatError, StateError, UnsupportedValue
from shardkeep.format.values import register_value_type
from shardkeep.pytorch.tensors import byte_view, check_tensor, dtype_name, empty_like_stored, torch_dtype


def register_torch_values() -> None:
    """Let values hold torch.Tensor, torch.Size, torch.dtype and torch.device. Repeating it changes nothing."""
    register_value_type("torch.Tensor", torch.Tensor, _plain_tensor, _tensor)
    register_value_type("torch.Size", torch.Size, list, _size)
    register_value_type("torch.dtype", torch.dtype, _plain_dtype, _dtype)
    register_value_type("torch.device", torch.device, str, _device)


def _plain_tensor(tensor: torch.Tensor) -> object:
    if isinstance(tensor, DTensor):
        raise UnsupportedValue("a DTensor cannot be part of a value; put it in a dict or list of its own")
    try:
        check_tensor(tensor, "a tensor among the values")
        name = dtype_name(tensor.dtype)
    except StateError as exc:
        raise UnsupportedValue(str(exc)) from exc
    row_major = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return {"dtype": name, "shape": list(tensor.shape), "data": bytes(byte_view(row_major))}


def _tensor(plain: Any) -> torch.Tensor:
    """A tensor on the CPU: where it belongs is for the caller to say."""
    try:
        dtype = torch_dtype(str(plain["dtype"]))
    except StateError as exc:
        raise FormatError(str(exc)) from exc
    shape, data = tuple(map(int, plain["shape"])), bytes(plain["data"])
    if any(size < 0 for size in shape) or prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{len(data)} bytes are not a {dtype} tensor of shape {shape}")
    tensor = empty_like_stored(dtype_name(dtype), shape)
    view = byte_view(tensor)
    if data:
        view[:] = data
    return tensor


def _size(plain: Any) -> torch.Size:
    return torch.Size([int(size) for size in plain])


def _plain_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(plain: Any) -> torch.dtype:
    found = getattr(torch, str(plain), None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"torch has no dtype {plain!r}")
    return found


def _device(plain: Any) -> torch.device:
    return torch.device(str(plain))
