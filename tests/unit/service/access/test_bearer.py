"""Reading a bearer token out of a header: what is none is refused, whatever else the header holds."""

from __future__ import annotations

import pytest

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access.bearer import bearer_token, find_bearer_token
from shardkeep_service.errors import Refusal


@pytest.mark.parametrize("header", ["Bearer shardkeep_x", "bearer shardkeep_x", "BEARER   shardkeep_x "])
def test_the_token_is_what_follows_the_scheme(header: str) -> None:
    assert bearer_token(header) == find_bearer_token(header) == "shardkeep_x"


@pytest.mark.parametrize("header", [None, "", "Basic abc", "Bearer", "Bearer ", "shardkeep_x"])
def test_a_header_without_a_bearer_token_is_token_missing(header: str | None) -> None:
    with pytest.raises(Refusal) as caught:
        bearer_token(header)
    assert caught.value.code is ErrorCode.TOKEN_MISSING
    assert find_bearer_token(header) is None


def test_a_long_text_is_cut_to_more_than_any_token_has() -> None:
    assert len(bearer_token(f"Bearer {'x' * 10_000}")) == 200
