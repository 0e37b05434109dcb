from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.errors import FormatError
from shardkeep.format import load_planning
from shardkeep.format.codecs import Codec
from shardkeep.format.columns import Ints
from shardkeep.format.index import Index, build_index, decode_index, encode_index
from shardkeep.format.load_plan import (
    LoadRequest,
    decode_load_plan,
    decode_load_request,
    decode_request_columns,
    encode_load_plan,
    encode_load_request,
    plan_load,
)
from shardkeep.format.regions import Region
from shardkeep.format.segments import SEGMENT_BYTES, SliceKind
from shardkeep.format.tensor_table import pack_texts, unpack_names
from tests.unit.format.builders import Array, ChunkShelf, as_slices, floats, manifest_of
from tests.unit.format.hostile import altered
from tests.unit.format.test_format_coverage import partitions, regions_of


def index_of(shelf: ChunkShelf, tensors: dict[str, Array], parts: dict[str, list[Region]]) -> Index:
    manifests = []
    for rank in range(4):
        slices = [
            shelf.slice_of(name, tensor, region, codec=Codec.ZSTD)
            for name, tensor in tensors.items()
            for region in parts[name][rank::4]
        ]
        manifests.append(manifest_of(slices, rank=rank))
    index, problems = build_index(manifests)
    assert problems == []
    return decode_index(encode_index(index))


@st.composite
def checkpoints(draw: st.DrawFn) -> tuple[dict[str, Array], dict[str, list[Region]]]:
    tensors, parts = {}, {}
    for number in range(draw(st.integers(1, 3))):
        shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
        tensors[f"t{number}"] = floats(*shape, seed=number) if shape else np.array(np.float32(number + 1))
        parts[f"t{number}"] = sorted(set(draw(partitions(shape))))
    return tensors, parts


@settings(max_examples=80)
@given(checkpoints(), st.data())
def test_plans_serve_every_wanted_element_once(
    checkpoint: tuple[dict[str, Array], dict[str, list[Region]]], data: st.DataObject
) -> None:
    tensors, parts = checkpoint
    shelf = ChunkShelf()
    index = index_of(shelf, tensors, parts)
    names = data.draw(st.lists(st.sampled_from([*tensors, "unknown"]), max_size=5))
    regions = tuple(
        None if name == "unknown" or data.draw(st.booleans()) else data.draw(regions_of(tensors[name].shape))
        for name in names
    )
    request = decode_load_request(encode_load_request(LoadRequest(tuple(names), regions)))

    plan = decode_load_plan(encode_load_plan(plan_load(index, request)))

    plan.check(request)
    assert set(plan.unknown) == set(names) - set(tensors)
    for item, (name, region) in enumerate(zip(names, regions, strict=True)):
        if name == "unknown":
            assert plan.dtype(item) is None
            continue
        wanted = np.zeros_like(tensors[name])
        window = as_slices(Region.whole(wanted.shape) if region is None else region)
        wanted[window] = tensors[name][window]
        assert shelf.read(plan, item) == wanted.tobytes()
    for piece in plan.pieces():
        assert piece.source in parts[names[piece.item]]


def big_index(shelf: ChunkShelf) -> tuple[Index, Array]:
    tensor = floats(6, SEGMENT_BYTES // 8)
    parts = {"w": [Region((0, 0), (5, SEGMENT_BYTES // 8)), Region((5, 0), (1, SEGMENT_BYTES // 8))]}
    return index_of(shelf, {"w": tensor}, parts), tensor


def test_pieces_name_only_the_segments_that_hold_their_bytes() -> None:
    shelf = ChunkShelf()
    index, tensor = big_index(shelf)
    row_bytes = SEGMENT_BYTES // 2
    request = LoadRequest(("w", "w"), (Region((2, 1), (1, 7)), Region((3, 0), (3, 2))))

    plan = plan_load(index, request)

    one, other, last = plan.pieces()
    assert [(segment.raw_start, segment.raw_bytes) for segment in one.segments] == [(2 * row_bytes, SEGMENT_BYTES)]
    assert [(segment.raw_start, segment.raw_bytes) for segment in other.segments] == [
        (SEGMENT_BYTES, SEGMENT_BYTES),
        (2 * SEGMENT_BYTES, row_bytes),
    ]
    assert [(segment.raw_start, segment.raw_bytes) for segment in last.segments] == [(0, row_bytes)]
    assert len(plan.segments()) == 3  # shared ones are listed once
    assert len(plan.chunks()) == 2
    wanted = np.zeros_like(tensor)
    wanted[2, 1:8] = tensor[2, 1:8]
    assert shelf.read(plan, 0) == wanted.tobytes()


def test_many_candidates_are_looked_at_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_planning, "_CANDIDATES_AT_ONCE", 5)
    shelf = ChunkShelf()
    tensor = floats(4, 16)
    index = index_of(shelf, {"w": tensor}, {"w": [Region((0, column), (4, 1)) for column in range(16)]})
    request = LoadRequest(("w",) * 5, (None, *(Region((1, column), (2, 3)) for column in range(4))))
    plan = plan_load(index, request)
    plan.check(request)
    assert len(plan.piece_columns) == 16 + 4 * 3
    assert shelf.read(plan, 0) == tensor.tobytes()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_however_a_tensor_is_cut_a_load_looks_only_at_the_slices_it_needs(
    axis: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tensor that is cut along one axis alone: slices that span the others overlap in row-major order."""
    looked_at: list[int] = []
    sharing = load_planning._sharing

    def counted(index: Index, wanted: Any, rows: Ints, slices: Ints) -> Any:
        looked_at.append(len(rows))
        return sharing(index, wanted, rows, slices)

    monkeypatch.setattr(load_planning, "_sharing", counted)
    shelf = ChunkShelf()
    tensor = floats(32, 32, 32)
    cuts = [
        Region(tuple(number if at == axis else 0 for at in range(3)), tuple(1 if at == axis else 32 for at in range(3)))
        for number in range(32)
    ]
    index = index_of(shelf, {"w": tensor}, {"w": cuts})
    region = Region(tuple(30 if at == axis else 5 for at in range(3)), (2, 2, 2))

    plan = plan_load(index, LoadRequest(("w",), (region,)))

    plan.check(LoadRequest(("w",), (region,)))
    assert len(plan.piece_columns) == 2
    assert sum(looked_at) <= 4, "of 32 slices two are needed"
    wanted = np.zeros_like(tensor)
    corner = tuple(slice(offset, offset + 2) for offset in region.offsets)
    wanted[corner] = tensor[corner]
    assert shelf.read(plan, 0) == wanted.tobytes()


def test_scalars_and_tensors_without_elements_load() -> None:
    shelf = ChunkShelf()
    slices = [
        shelf.slice_of("scalar", np.array(2.5)),
        shelf.slice_of("none", np.zeros((0, 3), "<i8")),
        shelf.slice_of("w", floats(4)),
    ]
    index, _ = build_index([manifest_of(slices, world_size=1)])
    request = LoadRequest(("none", "scalar", "w", "none"), (None, None, Region((2,), (0,)), Region((0, 1), (0, 2))))
    plan = decode_load_plan(encode_load_plan(plan_load(index, request)))
    plan.check(request)
    assert [piece.item for piece in plan.pieces()] == [1]
    assert shelf.read(plan, 1) == np.array(2.5).tobytes()
    assert (plan.dtype(0), plan.shape(0)) == ("int64", (0, 3))


@pytest.mark.parametrize(("rank", "served"), [(None, 0), (0, 0), (2, 2), (3, 0), (9, 0)])
def test_buffers_come_from_the_rank_asked_for_else_the_lowest(rank: int | None, served: int) -> None:
    shelf = ChunkShelf()
    own = [floats(3, seed=seed) for seed in range(3)]
    manifests = [
        manifest_of(
            [
                shelf.slice_of("mean", own[seed], kind=SliceKind.BUFFER),
                shelf.slice_of("value", own[seed], kind=SliceKind.VALUE),
            ],
            rank=seed,
        )
        for seed in range(3)
    ]
    index, problems = build_index(manifests)
    assert problems == []
    request = LoadRequest(("mean", "mean", "value"), (None, Region((1,), (1,)), None), rank)
    plan = plan_load(decode_index(encode_index(index)), decode_load_request(encode_load_request(request)))
    plan.check(request)
    assert len(plan.piece_columns) == 3
    assert shelf.read(plan, 0) == shelf.read(plan, 2) == own[served].tobytes()


def test_regions_that_do_not_fit_get_the_stored_shape_and_no_pieces() -> None:
    shelf = ChunkShelf()
    index, _ = build_index([manifest_of([shelf.slice_of("w", floats(4, 2))], world_size=1)])
    for region in (Region((0, 0), (5, 2)), Region((0,), (4,)), Region((3, 0), (2, 2))):
        request = LoadRequest(("w",), (region,))
        plan = plan_load(index, request)
        assert (plan.shape(0), plan.dtype(0), len(plan.piece_columns)) == ((4, 2), "float32", 0)
        with pytest.raises(FormatError, match="stored shape is"):
            plan.check(request)


def test_a_plan_for_another_request_is_refused() -> None:
    shelf = ChunkShelf()
    index = index_of(shelf, {"w": floats(8)}, {"w": [Region((0,), (4,)), Region((4,), (4,))]})
    plan = plan_load(index, LoadRequest(("w",), (Region((2,), (4,)),)))
    for request in (
        LoadRequest(("w",), (None,)),
        LoadRequest(("w",), (Region((2,), (3,)),)),
        LoadRequest(("w", "w"), (None, None)),
        LoadRequest((), ()),
    ):
        with pytest.raises(FormatError):
            plan.check(request)
    with pytest.raises(FormatError, match="unknown"):
        dataclasses.replace(plan, unknown=("v",)).check(LoadRequest(("w",), (Region((2,), (4,)),)))


def test_an_empty_index_knows_no_name() -> None:
    index, _ = build_index([manifest_of([], world_size=1)])
    request = LoadRequest(("w", "v", "w"), (None, Region((0,), (1,)), None))
    plan = plan_load(index, request)
    assert plan.unknown == ("w", "v")
    plan.check(request)


def test_few_names_and_many_are_found_in_a_large_index() -> None:
    names = [f"t{number:02}" for number in range(40)]
    shelf = ChunkShelf()
    index, _ = build_index([manifest_of([shelf.slice_of(name, floats(2)) for name in names], world_size=1)])
    for wanted in (["t07"], ["gone"], ["t39", "gone", "t00", "t39"], list(reversed(names))):
        expected = [names.index(name) if name in names else -1 for name in wanted]
        assert index.rows_of(wanted).tolist() == expected


def test_a_request_read_as_columns_gives_the_same_plan() -> None:
    index, _ = big_index(ChunkShelf())
    encoded = encode_load_request(LoadRequest(("w", "v", "w"), (None, None, Region((1, 2), (3, 4))), 3))
    plans = [plan_load(index, decode(encoded)) for decode in (decode_load_request, decode_request_columns)]
    assert encode_load_plan(plans[0]) == encode_load_plan(plans[1])


def test_a_request_with_an_empty_or_malformed_name_is_refused_each_time() -> None:
    for name in ("", "a\\b"):
        packed = pack_texts(("w", name, "v"))
        for _ in range(2):
            with pytest.raises(FormatError):
                unpack_names(packed, "names")


SHELF = ChunkShelf()
PLAN = encode_load_plan(plan_load(big_index(SHELF)[0], LoadRequest.whole(["w", "x"])))
REQUEST = encode_load_request(LoadRequest(("w", "v"), (None, Region((1, 2), (3, 4))), 5))


@settings(max_examples=150)
@given(st.data(), st.integers(1, 255))
def test_flipped_bytes_are_refused(data: st.DataObject, flip: int) -> None:
    for stored, decode in ((PLAN, decode_load_plan), (REQUEST, decode_load_request)):
        damaged = bytearray(stored)
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= flip
        with pytest.raises(FormatError):
            decode(bytes(damaged))


@settings(max_examples=300)
@given(st.data())
def test_any_change_inside_a_plan_or_request_is_valid_or_a_format_error(data: st.DataObject) -> None:
    """Whatever decodes can be read, and `check` may only refuse it."""
    try:
        request = decode_load_request(altered(REQUEST, 1, data))
        assert len(request.names) == len(request.regions)
    except FormatError:
        pass
    try:
        plan = decode_load_plan(altered(PLAN, 1, data))
        for piece in plan.pieces():
            assert piece.segments
        plan.check(LoadRequest.whole(["w", "x"]))
    except FormatError:
        return
