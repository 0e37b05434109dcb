"""The stretches of the overview: whole ones, few enough, that cover the window up to now."""

from __future__ import annotations

import pytest

from shardkeep_service.moments import MICROS_PER_SECOND
from shardkeep_service.overview.stretches import STRETCHES_LIMIT, WINDOW_HOURS_LIMIT, plan_stretches

HOUR = 3_600 * MICROS_PER_SECOND
NOW = 1_800_000_000 * MICROS_PER_SECOND + 1_234_567


@pytest.mark.parametrize("hours", [1, 2, 6, 7, 24, 33, 34, 100, 168, 399, 400, 720, 1197, 2394, 4788, 4800, 8760])
def test_whole_stretches_cover_the_window_and_hold_now(hours: int) -> None:
    stretches = plan_stretches(hours, now=NOW)

    assert 1 <= stretches.count <= STRETCHES_LIMIT
    assert stretches.start % stretches.micros == 0
    assert stretches.start <= NOW - hours * HOUR < stretches.start_of(1)
    assert stretches.start_of(stretches.count - 1) <= NOW < stretches.start_of(stretches.count)


def test_no_window_has_too_many() -> None:
    assert max(plan_stretches(hours, now=NOW).count for hours in range(1, WINDOW_HOURS_LIMIT + 1)) <= STRETCHES_LIMIT


def test_a_week_is_told_by_the_hour_and_a_year_by_the_day() -> None:
    assert plan_stretches(168, now=NOW).seconds == 3_600
    assert plan_stretches(WINDOW_HOURS_LIMIT, now=NOW).seconds == 86_400
