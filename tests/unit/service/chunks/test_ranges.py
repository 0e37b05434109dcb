"""Byte ranges: every header a client may send, decided as RFC 9110 says."""

from __future__ import annotations

import pytest

from shardkeep_service.chunks.ranges import ByteRange, choose_range
from shardkeep_service.errors import Refusal

SIZE = 1000
ETAG = '"digest"'


def choose(header: str | None, *, if_range: str | None = None, size_bytes: int = SIZE) -> ByteRange:
    return choose_range(header, if_range=if_range, etag=ETAG, size_bytes=size_bytes)


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-999", 0, 1000),
        ("bytes=0-", 0, 1000),
        ("bytes=999-", 999, 1000),
        ("bytes=999-999", 999, 1000),
        ("bytes=500-5000", 500, 1000),
        ("bytes=-1", 999, 1000),
        ("bytes=-1000", 0, 1000),
        ("bytes=-5000", 0, 1000),
        ("Bytes= 10-19 ", 10, 20),
    ],
)
def test_a_satisfiable_range_is_partial(header: str, start: int, end: int) -> None:
    chosen = choose(header)
    assert (chosen.start, chosen.end, chosen.partial) == (start, end, True)
    assert chosen.content_range == f"bytes {start}-{end - 1}/1000"


@pytest.mark.parametrize("header", ["bytes=1000-", "bytes=1000-1000", "bytes=5000-6000", "bytes=-0"])
def test_a_range_outside_is_not_satisfiable_and_says_the_size(header: str) -> None:
    with pytest.raises(Refusal) as caught:
        choose(header)
    assert caught.value.status == 416
    assert caught.value.headers["content-range"] == "bytes */1000"


@pytest.mark.parametrize(
    "header",
    [
        None, "", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-1", "items=0-1", "bytes=0-1,5-6", "bytes=0-1-2",
        "bytes=+1-2", "bytes=0x1-2", "bytes=" + "1" * 5000 + "-", "bytes=" + "0-0," * 5000, "bytes=\u0661-\u0662",
    ],
)  # fmt: skip
def test_other_headers_are_ignored(header: str | None) -> None:
    assert choose(header) == ByteRange(0, SIZE, SIZE, partial=False)


@pytest.mark.parametrize(("if_range", "partial"), [(ETAG, True), ('"other"', False), (f"W/{ETAG}", False), ("", False)])
def test_a_range_counts_only_when_if_range_matches(if_range: str, *, partial: bool) -> None:
    assert choose("bytes=0-9", if_range=if_range).partial is partial


def test_E131_every_length_around_a_boundary_is_exact() -> None:
    for boundary in (8, 1 << 16, 1 << 20):
        for length in range(boundary - 10, boundary + 11):
            if length > 0:
                chosen = choose(f"bytes=8-{8 + length - 1}", size_bytes=(1 << 20) + 100)
                assert chosen.length == length
