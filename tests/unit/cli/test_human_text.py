"""Numbers, times and names as a person reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shardkeep.cli.human_text import age_text, parse_size, printable, ranks_text, region_text, size_text

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1_500_000, "1.5 MB"),
        (999_700, "1 MB"),
        (5 * 10**18, "5 EB"),
    ],
)
def test_sizes(size: int | None, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("5GB", 5 * 10**9), ("512MiB", 512 << 20), ("1000", 1000), ("1.5 kb", 1500), ("7B", 7), ("2g", 2 * 10**9)],
)
def test_sizes_are_read_back(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "5XB", "1e9", "5iB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        parse_size(text)


def test_ages() -> None:
    ages = [age_text(NOW - timedelta(seconds=seconds), NOW) for seconds in (5, 600, 7200 * 3, 86400 * 9, -3)]
    assert ages == ["5 s ago", "10 min ago", "6 h ago", "9 days ago", "0 s ago"]


def test_ranks_are_shown_as_runs() -> None:
    assert ranks_text([0, 1, 2, 3, 7, 9, 10]) == "0-3, 7, 9-10"
    assert ranks_text([0, 2, 4, 5], at_most=2) == "0, 2 and 2 more"
    assert ranks_text([]) == ""


def test_regions_are_shown_as_slices() -> None:
    assert region_text((0, 4), (2, 4)) == "[0:2, 4:8]"
    assert region_text((), ()) == "[]"


def test_names_cannot_command_the_terminal() -> None:
    assert printable("a\x1b[31mb\u202ec\n") == "a\\x1b[31mb\\u202ec\\n"
    assert printable("caf\u00e9 \u6743") == "caf\u00e9 \u6743"
