"""The bytes of one local tensor: every dtype and layout, without numpy dtypes and without a second copy.

Where the tensor lies in something larger is in `dtensors` and `marks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch

from shardkeep.errors import MissingStorage, StateError
from shardkeep.format.dtypes import DTYPE_NAMES
from shardkeep.format.regions import regions_of_flat_range

PINNED_BYTES = 32 << 20
"""The most pinned memory one copy from an accelerator uses at a time."""

_TORCH_DTYPES: dict[str, torch.dtype] = {
    name: dtype for name in DTYPE_NAMES if isinstance(dtype := getattr(torch, name, None), torch.dtype)
}
_NAMES = {dtype: name for name, dtype in _TORCH_DTYPES.items()}
_SAME_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}

Fill = Callable[[int, memoryview], None]


def dtype_name(dtype: torch.dtype) -> str:
    """The stored name of a torch dtype; StateError for one that cannot be stored (quantised, sub-byte)."""
    name = _NAMES.get(dtype)
    if name is None:
        raise StateError(f"tensors of dtype {dtype} cannot be stored; convert it to one of {', '.join(_TORCH_DTYPES)}")
    return name


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype stored as `name`; StateError if this torch has none."""
    dtype = _TORCH_DTYPES.get(name)
    if dtype is None:
        raise StateError(f"torch {torch.__version__} has no dtype {name!r}; load this tensor with a newer torch")
    return dtype


def check_tensor(tensor: torch.Tensor, name: str) -> None:
    """Raise unless the tensor's own memory holds its elements.

    MissingStorage for meta, uninitialised and freed memory; StateError for sparse, quantised and nested tensors and
    for wrapper subclasses, whose data pointer is not their data.
    """
    if torch.nn.parameter.is_lazy(tensor):
        raise MissingStorage(f"{name} is not initialised yet: run one forward pass before saving or loading")
    if _is_wrapper(tensor):
        raise StateError(
            f"{name} is a {type(tensor).__name__}, a tensor subclass that wraps other tensors; it cannot be stored "
            "as it is. Give the tensors inside it, or an object whose state_dict() returns them"
        )
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise StateError(f"{name} is sparse, quantised or nested (layout {tensor.layout}, dtype {tensor.dtype})")
    if tensor.device.type == "meta":
        raise MissingStorage(
            f"{name} is on the meta device and has no memory: call module.to_empty(device=...) and initialise it first"
        )
    if tensor.untyped_storage().nbytes() < _needed_bytes(tensor):
        raise MissingStorage(
            f"{name} has shape {tuple(tensor.shape)} and its memory was freed (resized to "
            f"{tensor.untyped_storage().nbytes()} bytes); save or load while it is present"
        )


def _is_wrapper(tensor: torch.Tensor) -> bool:
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _needed_bytes(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (int(tensor.storage_offset()) + last + 1) * tensor.itemsize


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether several elements share memory by expansion, so that it cannot be written in place."""
    return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def byte_view(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor, writable, any dtype and ndim; keeps the memory alive."""
    if tensor.numel() == 0:
        return memoryview(bytearray())
    flat = tensor.detach().reshape(-1)
    if flat.data_ptr() != tensor.data_ptr() or tensor.device.type != "cpu":
        raise ValueError("byte_view takes a contiguous tensor on the CPU")
    return flat.view(torch.uint8).numpy().data


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the tensor's memory is its row-major bytes on the CPU, so that `byte_view` is its content."""
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements as integers of the same width, for copies that keep every bit and know every dtype."""
    plain = tensor.detach()
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    return plain.view(_SAME_WIDTH[plain.itemsize])


def fill_from(tensor: torch.Tensor) -> Fill:
    """`fill(start_byte, out)`: writes the row-major bytes from `start_byte` on that fit `out`.

    Reads live memory at the time of the call. `start_byte` and `len(out)` are multiples of the element size. A view
    gives its own elements only. No copy of the tensor is made, save one of at most `PINNED_BYTES` for accelerators.
    """
    if is_dense(tensor):
        return _fill_from_dense(tensor)
    return _fill_from_strided(tensor)


def _fill_from_dense(tensor: torch.Tensor) -> Fill:
    source = tensor.detach().reshape(-1).view(torch.uint8)

    def fill(start_byte: int, out: memoryview) -> None:
        if len(out):
            torch.frombuffer(out, dtype=torch.uint8).copy_(source[start_byte : start_byte + len(out)])

    return fill


def _fill_from_strided(tensor: torch.Tensor) -> Fill:
    shape = tuple(tensor.shape)
    item_bytes = tensor.itemsize
    live = tensor.detach()

    def fill(start_byte: int, out: memoryview) -> None:
        start, count = start_byte // item_bytes, len(out) // item_bytes
        step = max(1, PINNED_BYTES // item_bytes) if live.device.type != "cpu" else max(1, count)
        for first in range(start, start + count, step):
            last = min(first + step, start + count)
            part = out[(first - start) * item_bytes : (last - start) * item_bytes]
            _copy_boxes(live, shape, first, last, part)

    return fill


def _copy_boxes(live: torch.Tensor, shape: tuple[int, ...], first: int, last: int, out: memoryview) -> None:
    """Copy the row-major elements `first` to `last`, as boxes of the live tensor, one after the other into `out`."""
    word = _SAME_WIDTH[live.itemsize]
    target = torch.frombuffer(out, dtype=word)
    staged = target if live.device.type == "cpu" else torch.empty(len(target), dtype=word, pin_memory=True)
    position = 0
    for region in regions_of_flat_range(shape, first, last):
        box = bits(box_of(live, region.offsets, region.sizes))
        staged[position : position + region.volume].view(region.sizes).copy_(box, non_blocking=True)
        position += region.volume
    if staged is not target:
        torch.accelerator.current_stream(live.device).synchronize()
        target.copy_(staged)


def box_of(tensor: torch.Tensor, offsets: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    """The view of a box; no copy."""
    view = tensor
    for dim, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        if size != tensor.shape[dim]:
            view = view.narrow(dim, offset, size)
    return view


def write_into(tensor: torch.Tensor, source: torch.Tensor) -> None:
    """Copy `source` into live memory in place, bit for bit where the dtypes are equal, else converted."""
    with torch.no_grad():
        live = tensor.detach()
        if live.dtype != source.dtype or live.is_conj() or live.is_neg():
            live.copy_(source)
        else:
            bits(live).copy_(bits(source))


def empty_like_stored(dtype: str, shape: Sequence[int], device: torch.device | str = "cpu") -> torch.Tensor:
    """A row-major tensor with uninitialised content for a stored dtype and shape."""
    word = _SAME_WIDTH[torch_dtype(dtype).itemsize]  # torch warns where it makes complex32 itself
    return torch.empty(tuple(shape), dtype=word, device=device).view(torch_dtype(dtype))


def empty_in_layout_of(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """A tensor of a stored dtype with the shape, memory layout and device of `tensor`; uninitialised."""
    word = _SAME_WIDTH[torch_dtype(dtype).itemsize]
    return torch.empty_like(tensor, dtype=word, requires_grad=False).view(torch_dtype(dtype))


def raw_bytes(dtype: str, shape: Sequence[int]) -> int:
    """The size of a tensor in bytes."""
    return prod(shape) * torch_dtype(dtype).itemsize
