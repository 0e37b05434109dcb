from __future__ import annotations

import pytest

from shardkeep.protocol.durations import duration_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (1, "1 s"), (59, "59 s"), (60, "1 minute"), (90, "90 s"), (120, "2 minutes"), (3_600, "1 hour"),
        (129_600, "36 hours"), (86_400, "1 day"), (86_401, "86401 s"), (604_800, "7 days"),
    ],
)  # fmt: skip
def test_a_duration_is_said_exactly_in_the_largest_unit_that_can(seconds: int, text: str) -> None:
    assert duration_text(seconds) == text
