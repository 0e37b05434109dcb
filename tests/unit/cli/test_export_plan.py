"""Names, shards and windows of a pull."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.cli.export_plan import SourceTensor, plan_names, plan_shards, plan_windows
from shardkeep.format.dtypes import dtype_named
from shardkeep.format.names import join_name


def tensor(name: str, shape: tuple[int, ...], dtype: str = "float32") -> SourceTensor:
    return SourceTensor(name, dtype, shape, int(np.prod(shape, dtype=np.int64)) * dtype_named(dtype).item_bytes)


def test_names_are_written_as_plain_text() -> None:
    assert plan_names(["model.w", r"model.a\.b"]) == {"model.w": "model.w", r"model.a\.b": "model.a.b"}


def test_E210_names_with_one_plain_text_keep_their_stored_names() -> None:
    assert plan_names([r"a\.b", "a.b"]) == {r"a\.b": r"a\.b", "a.b": "a.b"}


def test_E209_E210_names_that_only_look_alike_stay_apart() -> None:
    names = ["caf\u00e9", "cafe\u0301", "a b", "a_b", "w/1", "w_1", "W", "w"]
    assert plan_names(names) == {name: name for name in names}


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["a", ".", "\\", "a.a", "\\.", "__metadata__"]), min_size=1, max_size=3),
        unique_by=tuple,
    )
)
def test_E210_names_in_files_never_collide(parts: list[list[str]]) -> None:
    chosen = plan_names(sorted({join_name(item) for item in parts}))
    assert len(set(chosen.values())) == len(chosen)
    assert "__metadata__" not in chosen.values()


def test_a_prefix_can_be_left_out_of_the_names() -> None:
    chosen = plan_names(["model.a.w", "model", r"model.x\.y"], stripped_parts=1)
    assert chosen == {"model.a.w": "a.w", "model": "model", r"model.x\.y": "x.y"}


def test_shards_are_filled_in_order_and_a_big_tensor_gets_its_own() -> None:
    tensors = [tensor("a", (10,)), tensor("b", (10,)), tensor("c", (100,)), tensor("d", (1,))]
    shards = plan_shards(tensors, max_shard_bytes=80, names={t.name: t.name for t in tensors}, aliases={})
    assert [[entry.tensor.name for entry in shard.entries] for shard in shards] == [["a", "b"], ["c"], ["d"]]
    assert [shard.file_name for shard in shards] == [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]


def test_one_shard_is_called_model_safetensors_even_if_it_is_empty() -> None:
    assert [shard.file_name for shard in plan_shards([], max_shard_bytes=80, names={}, aliases={})] == [
        "model.safetensors"
    ]


def test_E105_E108_the_kept_name_of_a_tie_is_written_and_the_others_are_listed() -> None:
    tensors = [tensor("model.embed.weight", (4,))]
    (shard,) = plan_shards(
        tensors,
        max_shard_bytes=80,
        names={"model.embed.weight": "model.embed.weight"},
        aliases={"head.weight": "model.embed.weight", "elsewhere": "not.here"},
    )
    assert [entry.header.name for entry in shard.entries] == ["model.embed.weight"]
    assert shard.notes.aliases == {"head.weight": "model.embed.weight"}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), min_size=1, max_size=5),
    st.integers(16, 200),
    st.sampled_from(["uint8", "float32", "complex128"]),
)
def test_windows_read_every_byte_once_in_file_order(
    shapes: list[tuple[int, ...]], window_bytes: int, dtype: str
) -> None:
    tensors = [tensor(f"t{number}", shape, dtype) for number, shape in enumerate(shapes)]
    (shard,) = plan_shards(tensors, max_shard_bytes=1 << 40, names={t.name: t.name for t in tensors}, aliases={})
    rng = np.random.default_rng(0)
    item_bytes = dtype_named(dtype).item_bytes
    arrays = {t.name: rng.integers(0, 255, (*t.shape, item_bytes), np.uint8) for t in tensors}
    written = b""
    for window in plan_windows(shard, window_bytes):
        assert 0 < window.size_bytes <= window_bytes
        buffer = bytearray(window.size_bytes)
        for piece in window.pieces:
            box = tuple(slice(start, end) for start, end in zip(piece.region.offsets, piece.region.ends, strict=True))
            buffer[piece.start : piece.stop] = arrays[piece.tensor.name][box].tobytes()
        written += bytes(buffer)
    assert written == b"".join(arrays[entry.tensor.name].tobytes() for entry in shard.entries)
