"""Safetensors files as written and read here, against the reference implementation."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open, serialize_file
from safetensors.numpy import load_file, save_file

from shardkeep.cli.export_plan import Shard, SourceTensor, plan_names, plan_shards
from shardkeep.cli.safetensors_metadata import FileNotes
from shardkeep.cli.safetensors_reader import SafetensorsFile
from shardkeep.cli.safetensors_writer import SafetensorsWriter
from shardkeep.errors import FormatError
from shardkeep.format.dtypes import DTYPE_NAMES, dtype_named


def tensor(name: str, dtype: str, shape: tuple[int, ...]) -> SourceTensor:
    return SourceTensor(name, dtype, shape, int(np.prod(shape, dtype=np.int64)) * dtype_named(dtype).item_bytes)


def content(item: SourceTensor) -> bytes:
    return np.random.default_rng(len(item.name)).bytes(item.raw_bytes)


def planned(tensors: list[SourceTensor], aliases: dict[str, str] | None = None) -> Shard:
    names = plan_names([item.name for item in tensors])
    return plan_shards(tensors, max_shard_bytes=1 << 40, names=names, aliases=aliases or {})[0]


def write(path: Path, shard: Shard, metadata: dict[str, str] | None = None) -> None:
    writer = SafetensorsWriter(
        path, [entry.header for entry in shard.entries], {**(metadata or {}), **shard.notes.metadata()}
    )
    for entry in shard.entries:
        writer.write(memoryview(content(entry.tensor)))
    writer.finish()
    writer.publish()


def read_all(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    file = SafetensorsFile(path)
    found = {}
    for item in file.tensors:
        out = bytearray(item.size_bytes)
        file.read_into(item, 0, memoryview(out))
        found[item.name] = (item.dtype, item.shape, bytes(out))
    file.close()
    return found


def file_of(path: Path, header: object, data: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


ALL = [
    *(tensor(f"t.{name}", name, (3, 4)) for name in DTYPE_NAMES),
    *(tensor(f"scalar.{name}", name, ()) for name in DTYPE_NAMES),
    *(tensor(f"empty.{name}", name, (0, 5)) for name in DTYPE_NAMES),
]


def test_E123_every_dtype_survives_a_write_and_a_read_with_its_dtype_and_shape(tmp_path: Path) -> None:
    write(tmp_path / "all.safetensors", planned(ALL))
    found = read_all(tmp_path / "all.safetensors")
    assert found == {item.name: (item.dtype, item.shape, content(item)) for item in ALL}


def test_E123_the_reference_reader_opens_what_is_written_and_sees_the_same_bytes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "all.safetensors"
    write(path, planned(ALL), {"format": "pt"})
    with safe_open(path, framework="pt") as file:
        assert set(file.keys()) == {item.name for item in ALL}
        views = json.loads(file.metadata()["shardkeep.views"])
        for item in ALL:
            got = file.get_tensor(item.name)
            flat = got.contiguous().reshape(-1).view(torch.uint8) if got.numel() else torch.empty(0, dtype=torch.uint8)
            assert flat.numpy().tobytes() == content(item), item.name
            if item.name not in views:
                assert (str(got.dtype), tuple(got.shape)) == (f"torch.{item.dtype}", item.shape)


def test_E123_a_complex_buffer_is_a_real_view_with_a_trailing_two(tmp_path: Path) -> None:
    path = tmp_path / "rotary.safetensors"
    shard = planned([tensor("freqs", "complex64", (16,)), tensor("c", "complex128", (2, 2))])
    write(path, shard)
    arrays = load_file(path)
    assert (arrays["freqs"].dtype, arrays["freqs"].shape) == (np.dtype("<f4"), (16, 2))
    assert (arrays["c"].dtype, arrays["c"].shape) == (np.dtype("<f8"), (2, 2, 2))
    assert arrays["freqs"].tobytes() == content(tensor("freqs", "complex64", (16,)))


def test_only_dtypes_that_old_readers_know_are_written() -> None:
    known_to_0_4_5 = {
        "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "F64", "I64", "U64",
    }  # fmt: skip
    assert {entry.header.code for entry in planned(ALL).entries} <= known_to_0_4_5


def test_every_tensor_starts_at_a_multiple_of_its_element_size() -> None:
    for entry in planned(ALL).entries:
        assert entry.header.start % dtype_named(entry.tensor.dtype).item_bytes == 0


def test_files_of_the_reference_writer_are_read_with_equal_bytes(tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
        "zero_d": np.array(7, dtype=np.int64),
        "empty": np.zeros((0, 3), np.float16),
        "flag": np.array([True, False]),
        "u16": np.array([1, 65535], np.uint16),
        "c64": np.array([1 + 2j, 3 - 4j], np.complex64),
    }
    save_file(arrays, tmp_path / "a.safetensors", metadata={"author": "x"})
    found = read_all(tmp_path / "a.safetensors")
    assert {name: data for name, (_, _, data) in found.items()} == {name: a.tobytes() for name, a in arrays.items()}
    assert {name: (dtype, shape) for name, (dtype, shape, _) in found.items()} == {
        name: (array.dtype.name, array.shape) for name, array in arrays.items()
    }


def test_torch_files_with_small_floats_are_read_with_their_dtypes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    tensors = {
        "bf16": torch.randn(5, 3).bfloat16(),
        "f8": torch.randn(8).to(torch.float8_e4m3fn),
        "f8b": torch.randn(8).to(torch.float8_e5m2),
        "e8m0": torch.ones(4).to(torch.float8_e8m0fnu),
        "f4": torch.arange(8, dtype=torch.uint8).reshape(2, 4).view(torch.float4_e2m1fn_x2),
    }
    save_torch(tensors, tmp_path / "t.safetensors")
    found = read_all(tmp_path / "t.safetensors")
    for name, item in tensors.items():
        dtype, shape, data = found[name]
        assert (f"torch.{dtype}", shape) == (str(item.dtype), tuple(item.shape))
        assert data == item.view(torch.uint8).numpy().tobytes()


def entry(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ({"a": entry("F32", [2], 0, 8), "b": entry("U8", [4], 4, 8)}, bytes(8), "overlap"),
        ({"a": entry("F32", [2], 4, 12)}, bytes(12), "belong to no tensor"),
        ({"a": entry("F32", [2], 0, 8)}, bytes(9), "belong to no tensor"),
        ({"a": entry("F32", [2], 0, 8)}, bytes(7), "cut short"),
        ({"a": entry("F32", [3], 0, 8)}, bytes(8), "needs 12"),
        ({"a": entry("F32", [1 << 62, 1 << 62], 0, 8)}, bytes(8), "needs"),
        ({"a": entry("F32", [-2], 0, 8)}, bytes(8), "shape"),
        ({"a": entry("F32", [True], 0, 4)}, bytes(4), "shape"),
        ({"a": entry("F32", [1], 4, 0)}, bytes(4), "data_offsets"),
        ({"a": {"dtype": "F32", "shape": [1]}}, bytes(4), "not described"),
        ({"a": entry("Q9", [1], 0, 1)}, bytes(1), "unknown dtype 'Q9'"),
        ({"a": entry("F6_E2M3", [4], 0, 3)}, bytes(3), "F6_E2M3"),
        ({"a": entry("F4", [2, 1], 0, 1)}, bytes(1), "two numbers share a byte"),
        ({"__metadata__": {"a": 1}}, b"", "not a map of texts"),
        (b'{"a": 1, "a": 2}', b"", "twice"),
        (b'{"a": ', b"", "not JSON"),
        (b"[]", b"", "begin with"),
        (b'{"\xff": 1}', b"", "not JSON"),
        (b"{" + b'"a":{' * 5000, b"", "not JSON"),
    ],
)
def test_a_malformed_file_is_a_clear_error_that_names_the_file(
    tmp_path: Path, header: object, data: bytes, message: str
) -> None:
    path = file_of(tmp_path / "bad.safetensors", header, data)
    with pytest.raises(FormatError, match=message) as caught:
        SafetensorsFile(path)
    assert "bad.safetensors" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"\x01\x02", struct.pack("<Q", 1 << 40), struct.pack("<Q", 99) + b"{}"])
def test_a_file_that_ends_within_its_header_is_an_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "short.safetensors"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"short\.safetensors"):
        SafetensorsFile(path)


def test_a_note_that_contradicts_the_header_is_an_error(tmp_path: Path) -> None:
    views = json.dumps({"a": {"dtype": "complex64", "shape": [3]}})
    header = {
        "__metadata__": {"shardkeep.views": views},
        "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
    }
    with pytest.raises(FormatError, match="does not fit"):
        SafetensorsFile(file_of(tmp_path / "a.safetensors", header, bytes(16)))


def test_notes_round_trip_and_are_left_out_when_empty() -> None:
    shard = planned(
        [tensor("w", "complex32", (2,)), tensor("a\\.b", "uint8", (1,)), tensor("a.b", "uint8", (1,))], {"tied": "w"}
    )
    assert FileNotes.parse(shard.notes.metadata()) == shard.notes
    assert FileNotes().metadata() == {}


def test_a_file_gets_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    shard = planned([tensor("w", "uint8", (4,))])
    writer = SafetensorsWriter(tmp_path / "m.safetensors", [entry.header for entry in shard.entries], {})
    writer.write(memoryview(b"ab"))
    with pytest.raises(ValueError, match="header says"):
        writer.finish()
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_an_f4_tensor_of_the_reference_writer_has_the_shape_torch_gives_it(tmp_path: Path) -> None:
    from safetensors import TensorSpec

    data = np.arange(8, dtype=np.uint8).reshape(2, 4)
    spec = TensorSpec(dtype="float4_e2m1fn_x2", shape=[2, 4], data_ptr=data.ctypes.data, data_len=8)
    serialize_file({"q": spec}, tmp_path / "q.safetensors")
    assert read_all(tmp_path / "q.safetensors") == {"q": ("float4_e2m1fn_x2", (2, 4), data.tobytes())}
