"""Token texts: their shape, their check characters and what is kept of them."""

from __future__ import annotations

import re

import pytest

from shardkeep_service.access.secrets import PREFIX, is_token_text, new_token_text, shown_part, token_hash


def test_a_token_has_the_prefix_and_more_than_128_random_bits() -> None:
    text = new_token_text()
    assert re.fullmatch(r"shardkeep_[0-9A-Za-z]{33}", text)
    assert len({new_token_text() for _ in range(200)}) == 200


def test_every_single_mistyped_character_is_noticed_without_a_database() -> None:
    text = new_token_text()
    assert is_token_text(text)
    for position in range(len(PREFIX), len(text)):
        other = "a" if text[position] != "a" else "b"
        assert not is_token_text(text[:position] + other + text[position + 1 :])


@pytest.mark.parametrize(
    "text", ["", "shardkeep_", "shardkeep_abc", "ghp_" + "a" * 33, "shardkeep_" + "é" * 33, "x" * 10_000]
)
def test_other_texts_are_no_tokens(text: str) -> None:
    assert not is_token_text(text)


def test_what_is_shown_of_a_token_does_not_give_it_away() -> None:
    text = new_token_text()
    assert len(shown_part(text)) == len(PREFIX) + 4
    assert token_hash(text) != token_hash(text + "x")
    assert text not in token_hash(text)
