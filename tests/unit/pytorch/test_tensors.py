from __future__ import annotations

from typing import Any

import pytest
import torch

from shardkeep.errors import MissingStorage, StateError
from shardkeep.format.dtypes import DTYPE_NAMES
from shardkeep.format.regions import Region
from shardkeep.pytorch.captured import Piece
from shardkeep.pytorch.tensors import (
    byte_view,
    check_tensor,
    dtype_name,
    empty_like_stored,
    fill_from,
    is_dense,
    torch_dtype,
    write_into,
)
from tests.unit.pytorch.memory_checkpoint import bytes_of

ALL_DTYPES = [name for name in DTYPE_NAMES if hasattr(torch, name)]
SHAPES = [(), (1,), (3,), (0, 3), (5, 7), (2, 3, 5)]


def random_tensor(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    made = empty_like_stored(dtype, shape)
    high = 2 if dtype == "bool" else 256
    view = byte_view(made)
    if len(view):
        view[:] = bytes(torch.randint(0, high, (len(view),), dtype=torch.uint8).numpy())
    return made


def filled(tensor: torch.Tensor) -> bytes:
    return bytes_of(Piece(Region.whole(tuple(tensor.shape)), tensor), dtype_name(tensor.dtype))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_E122_E123_E125_every_dtype_and_shape_keeps_every_byte(dtype: str, shape: tuple[int, ...]) -> None:
    source = random_tensor(dtype, shape)
    expected = bytes(byte_view(source))
    target = empty_like_stored(dtype, shape)
    write_into(target, source)
    assert dtype_name(torch_dtype(dtype)) == dtype
    assert filled(source) == expected
    assert bytes(byte_view(target)) == expected


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_E125_non_contiguous_slices_of_every_dtype_give_row_major_bytes(dtype: str) -> None:
    whole = random_tensor(dtype, (6, 8))
    view = whole[1:5, ::2].t()
    item = whole.itemsize
    rows = byte_view(whole)
    expected = b"".join(
        bytes(rows[(row * 8 + column) * item : (row * 8 + column + 1) * item])
        for column in range(0, 8, 2)
        for row in range(1, 5)
    )
    assert filled(view) == expected
    target = random_tensor(dtype, (6, 8))[1:5, ::2].t()
    write_into(target, view)
    assert filled(target) == expected


def layouts() -> dict[str, torch.Tensor]:
    base = torch.arange(8 * 3 * 5 * 5, dtype=torch.float32)
    return {
        "channels_last": base.reshape(8, 3, 5, 5).to(memory_format=torch.channels_last),
        "transposed": base[:24].reshape(4, 6).t(),
        "step 2": base[:24].reshape(4, 6)[:, ::2],
        "expanded": base[:5].reshape(1, 5).expand(4, 5),
        "flipped": base[:24].reshape(4, 6).flip(0),
        "storage offset": base[3:15].reshape(3, 4),
        "parameter": torch.nn.Parameter(base[:6].reshape(2, 3)),
        "graph": torch.nn.Parameter(base[:6].reshape(2, 3)) * 2,
    }


@pytest.mark.parametrize("layout", list(layouts()))
def test_E126_every_layout_gives_its_values(layout: str) -> None:
    tensor = layouts()[layout]
    assert filled(tensor) == tensor.detach().contiguous().numpy().tobytes()


def test_E127_all_rows_of_an_expanded_tensor_are_stored() -> None:
    tensor = torch.tensor([1.0, 2.0]).expand(4, 2)
    assert torch.frombuffer(bytearray(filled(tensor)), dtype=torch.float32).tolist() == [1.0, 2.0] * 4


def test_conjugate_and_negative_views_are_resolved() -> None:
    tensor = torch.randn(3, 4, dtype=torch.complex64)
    assert filled(tensor.conj()) == tensor.conj().resolve_conj().numpy().tobytes()
    assert filled(tensor.conj().imag) == tensor.conj().imag.resolve_neg().numpy().tobytes()
    assert not is_dense(tensor.conj())


def test_writing_through_a_conjugate_view_gives_its_values() -> None:
    live = torch.zeros(3, dtype=torch.complex64)
    source = torch.randn(3, dtype=torch.complex64)
    write_into(live.conj(), source)
    assert torch.equal(live.conj(), source)


def test_a_dense_tensor_is_read_where_it_lies_at_the_time_of_the_call() -> None:
    tensor = torch.zeros(4)
    fill = fill_from(tensor)
    tensor += 1
    out = bytearray(16)
    fill(0, memoryview(out))
    assert torch.frombuffer(out, dtype=torch.float32).tolist() == [1.0] * 4
    assert byte_view(tensor).nbytes == 16


def test_filling_reads_any_part_into_unaligned_memory() -> None:
    tensor = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5).permute(2, 0, 1)
    expected = tensor.contiguous().numpy().tobytes()
    for start, stop in ((0, 4), (4, 100), (52, 240), (240, 240)):
        out = bytearray(stop - start + 1)
        fill_from(tensor)(start, memoryview(out)[1:])
        assert out[1:] == expected[start:stop]


def test_writing_into_a_leaf_that_requires_grad_needs_no_grad_mode() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2, 3).t())
    write_into(parameter, torch.ones(3, 2))
    assert parameter.sum().item() == 6
    assert parameter.requires_grad


def test_E168_a_tensor_whose_storage_was_freed_is_an_error() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1000, 8))
    parameter.untyped_storage().resize_(0)
    with pytest.raises(MissingStorage, match=r"w has shape \(1000, 8\) and its memory was freed"):
        check_tensor(parameter, "w")


def test_a_meta_tensor_is_an_error_that_names_to_empty() -> None:
    with pytest.raises(MissingStorage, match="to_empty"):
        check_tensor(torch.empty(2, device="meta"), "w")


def test_a_lazy_parameter_is_an_error() -> None:
    with pytest.raises(MissingStorage, match="forward"):
        check_tensor(torch.nn.LazyLinear(2).weight, "w")


class Wrapper(torch.Tensor):
    """A subclass whose data pointer is not its data."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError


def test_a_wrapper_subclass_is_an_error() -> None:
    with pytest.raises(StateError, match="w is a Wrapper, a tensor subclass"):
        check_tensor(torch.zeros(2).as_subclass(Wrapper), "w")


def test_sparse_and_quantised_tensors_are_errors() -> None:
    with pytest.raises(StateError, match="sparse"):
        check_tensor(torch.eye(3).to_sparse(), "w")
    with pytest.raises(StateError, match="cannot be stored"):
        dtype_name(torch.qint8)
