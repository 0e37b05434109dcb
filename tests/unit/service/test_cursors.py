"""Cursors: whatever a list ends a page with continues it, and nothing that was forged reaches a query."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from shardkeep.format.names import MAX_NAME_BYTES
from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.cursors import MAX_CURSOR_LENGTH, decode_cursor, encode_cursor
from shardkeep_service.errors import Refusal
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Part, Training, pack

LONGEST = ["a", "ш", "模", "😀", '"', "\\\\", "\x01", "\x7f"]
ROW = np.ones((1, 4), np.float32)


def longest(text: str) -> str:
    """A name as long as names may be."""
    return text * (MAX_NAME_BYTES // len(text.encode()))


def forged(cursor: str, *position: object) -> str:
    """The cursor with another position."""
    fingerprint, *_ = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    return base64.urlsafe_b64encode(json.dumps([fingerprint, *position]).encode()).decode().rstrip("=")


@pytest.mark.parametrize("text", LONGEST)
def test_the_longest_name_of_whatever_characters_is_a_position(text: str) -> None:
    position = ((1 << 63) - 1, -(1 << 62), longest(text))

    cursor = encode_cursor("values", {"checkpoint": "c"}, position)

    assert len(cursor) <= MAX_CURSOR_LENGTH
    assert decode_cursor(cursor, "values", {"checkpoint": "c"}, (int, int, str)) == position


@pytest.mark.parametrize("text", ["ш", "\x01"])
def test_a_page_that_ends_at_the_longest_name_has_a_next_one(training: Training, text: str) -> None:
    names = sorted([longest(text), longest(text)[:-1] + "z"])
    packed = pack([Part(name, (1, 4), 0, ROW) for name in names], rank=0, world_size=1, step=1)
    saved = training.save(training.start(1), save=1, step=1, world_size=1, packed=[packed])
    path = routes.path(routes.TENSORS, checkpoint=saved)

    first = training.service.ask("GET", path, query={"limit": 1})
    second = training.service.ask("GET", path, query={"limit": 1, "cursor": first["next_cursor"]})

    assert [page["items"][0]["name"] for page in (first, second)] == names


@BOTH_DATABASES
def test_a_forged_text_that_no_column_holds_is_refused(local: LocalService) -> None:
    for name in ("one", "two"):
        local.ask("POST", "/v1/projects", {"name": name})
    cursor = local.ask("GET", "/v1/projects", query={"limit": 1})["next_cursor"]

    for name in ("\0", "a\0b", "\ud800", "a\udfff"):
        local.refused("invalid_cursor", "GET", "/v1/projects", query={"cursor": forged(cursor, name)})


@pytest.mark.parametrize("cursor", ["", "a", "é", "W10", "e30", "bnVsbA", "A" * (MAX_CURSOR_LENGTH + 1)])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(Refusal) as refused:
        decode_cursor(cursor, "projects", {}, (str,))

    assert refused.value.code == ErrorCode.INVALID_CURSOR


def test_a_cursor_too_long_for_any_is_a_refusal_of_the_service(local: LocalService) -> None:
    local.refused("invalid_cursor", "GET", "/v1/projects", query={"cursor": "A" * (MAX_CURSOR_LENGTH + 1)})
