from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import FormatError
from shardkeep.format.index import build_index
from shardkeep.format.names import MAX_NAME_BYTES, check_name, join_name, plain_text, split_name
from tests.unit.format.builders import ChunkShelf, floats, manifest_of

PARTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(".\\"), max_size=6), min_size=1)


@given(PARTS)
def test_names_round_trip(parts: list[str]) -> None:
    assert split_name(join_name(parts)) == tuple(parts)


@given(PARTS, PARTS)
def test_different_parts_never_share_a_name(one: list[str], other: list[str]) -> None:
    assert (join_name(one) == join_name(other)) == (one == other)


def test_a_dotted_key_and_a_nested_key_differ_but_read_the_same() -> None:
    assert join_name(["a.b"]) == "a\\.b" != join_name(["a", "b"])
    assert plain_text("a\\.b") == plain_text("a.b") == "a.b"
    assert split_name("a..b") == ("a", "", "b")


@pytest.mark.parametrize(
    "name", ["", "a\0b", "\ud800", "a\\", "a\\b", "x" * (MAX_NAME_BYTES + 1), "\u00e9" * MAX_NAME_BYTES]
)
def test_names_that_cannot_be_stored_are_refused(name: str) -> None:
    with pytest.raises(FormatError):
        check_name(name)


def test_the_longest_name_is_allowed() -> None:
    check_name("x" * MAX_NAME_BYTES)


def test_one_string_is_not_a_sequence_of_parts() -> None:
    with pytest.raises(TypeError):
        join_name("ab")
    with pytest.raises(FormatError):
        join_name([])


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9")), id="E209-composed-and-decomposed"),
        pytest.param(("Weight", "weight"), id="E209-case"),
        pytest.param(("a b", "a_b"), id="E210-space"),
        pytest.param(("w/1", "w_1"), id="E210-slash"),
    ],
)
def test_E209_E210_look_alike_names_stay_apart(names: tuple[str, str]) -> None:
    shelf = ChunkShelf()
    slices = [shelf.slice_of(name, floats(3, seed=seed)) for seed, name in enumerate(names)]

    index, problems = build_index([manifest_of(slices, world_size=1)])

    assert problems == []
    assert set(index.tensor_names) == set(names)
    for record in slices:
        assert index.find_plain(record.name) == (record.name,)
        assert index.tensor(record.name).slices[0].segments == record.segments
