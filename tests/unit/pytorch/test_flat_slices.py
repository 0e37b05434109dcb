from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.format.segments import SliceKind
from shardkeep.pytorch.captured import Placed
from shardkeep.pytorch.flat_slices import (
    FlatPart,
    FlatSlices,
    is_in_slices,
    keep_in_slices,
    keep_whole,
    note_write,
    slices_of,
)
from shardkeep.pytorch.pieces import pieces_of
from shardkeep.pytorch.ties import Ties


@given(st.lists(st.integers(0, 4), max_size=4), st.data())
def test_slices_are_boxes_that_cover_their_elements_once_and_are_views(shape: list[int], data: st.DataObject) -> None:
    whole = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    cuts = sorted(data.draw(st.lists(st.integers(0, whole.numel()), max_size=3)))
    flat = whole.reshape(-1)
    borders = [0, *cuts, whole.numel()]
    parts = tuple(FlatPart(start, flat[start:stop]) for start, stop in pairwise(borders))

    pieces = FlatSlices(tuple(shape), whole.dtype, parts).pieces()

    covered = torch.zeros(shape)
    for piece in pieces:
        at = tuple(slice(start, end) for start, end in zip(piece.region.offsets, piece.region.ends, strict=True))
        assert tuple(piece.tensor.shape) == piece.region.sizes
        assert torch.equal(piece.tensor, whole[at])
        assert piece.tensor.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
        covered[at] += 1
    assert bool((covered == 1).all())
    assert len(pieces) <= len(parts) * max(1, 2 * len(shape) - 1)


def test_slices_without_elements_are_no_pieces_and_the_tensor_is_known_all_the_same() -> None:
    captured = FlatSlices((0, 4), torch.bfloat16, (FlatPart(0, torch.empty(0)),)).captured(
        ("a", "b"), SliceKind.OPTIMIZER
    )

    assert (captured.name, captured.dtype, captured.shape, captured.pieces) == ("a.b", "bfloat16", (0, 4), ())
    assert captured.placement == Placed()


def test_a_tensor_kept_in_slices_gives_those_and_is_tied_by_identity_alone() -> None:
    held = torch.arange(3.0)
    freed, other = torch.full((), torch.nan).expand(6), torch.full((), torch.nan).expand(6)
    written: list[int] = []
    for tensor in (freed, other):
        keep_in_slices(tensor, lambda: FlatSlices((6,), held.dtype, (FlatPart(2, held),)), lambda: written.append(1))

    pieces, placement = pieces_of(freed, "freed")
    ties = Ties()

    assert [(piece.region.offsets, piece.tensor.tolist()) for piece in pieces] == [((2,), [0.0, 1.0, 2.0])]
    assert placement == Placed()
    assert [ties.first_name(one, name) for one, name in ((freed, "freed"), (other, "other"))] == ["freed", "other"]
    note_write(freed)
    assert written == [1]


def test_a_tensor_that_is_whole_again_is_an_ordinary_one() -> None:
    tensor = torch.ones(2)
    keep_in_slices(tensor, lambda: FlatSlices((2,), tensor.dtype, ()), lambda: None)

    keep_whole(tensor)
    keep_whole(tensor)

    assert not is_in_slices(tensor)
    assert slices_of(tensor) is None


def test_a_write_past_autograd_counts_as_one() -> None:
    tensor = torch.ones(2)
    before = tensor._version

    note_write(tensor)
    with torch.inference_mode():
        note_write(torch.ones(2))

    assert tensor._version == before + 1
