"""The planner alone: every rule, their union, and what no rule can delete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.protocol.messages import BestRule, RetentionRules
from shardkeep_service.retention.plan import Candidate, Needed, Verdict, plan_retention

SECOND = 1_000_000
HOUR = 3600 * SECOND
NOW = 1_000_000 * HOUR


def line(*steps: int, **fields: Any) -> list[Candidate]:
    """Committed on the line in this order, one an hour, the last one an hour ago."""
    return [
        Candidate(f"c{step}", step, sequence, NOW - (len(steps) - sequence + 1) * HOUR, on_line=True, **fields)
        for sequence, step in enumerate(steps, start=1)
    ]


def plan(candidates: Sequence[Candidate], needed: Needed | None = None, **rules: Any) -> list[Verdict]:
    return plan_retention(candidates, RetentionRules(**rules), needed or Needed(), now=NOW)


def kept(verdicts: Sequence[Verdict]) -> list[int]:
    return [verdict.candidate.step for verdict in verdicts if verdict.kept]


def codes(verdicts: Sequence[Verdict], step: int) -> list[str]:
    [verdict] = [verdict for verdict in verdicts if verdict.candidate.step == step]
    return [reason.code.value for reason in verdict.reasons]


def test_the_worked_table_of_the_documentation() -> None:
    metrics: dict[int, float | str] = {
        100: 2.0,
        200: 1.5,
        300: 1.1,
        400: 1.3,
        500: "NaN",
        600: 1.2,
        700: 1.25,
        800: 1.4,
    }
    found = [replace(one, metrics={"loss": metrics[one.step]}) for one in line(*metrics)]
    found[1] = replace(found[1], pinned=True)
    verdicts = plan(found, keep_last=2, every_steps=400, best=[BestRule(metric="loss", mode="min", count=2)])

    assert kept(verdicts) == [200, 300, 400, 600, 700, 800]
    assert codes(verdicts, 200) == ["pinned"]
    assert codes(verdicts, 300) == ["best"]
    assert codes(verdicts, 400) == ["every_steps"]
    assert codes(verdicts, 500) == ["no_rule"]
    assert codes(verdicts, 800) == ["just_committed", "keep_last", "every_steps"]


def test_E81_the_order_is_the_commit_sequence_whatever_the_clock_says() -> None:
    found = line(200, 400, 600, 800, 1000)
    found[3] = replace(found[3], committed_at=found[3].committed_at - 9 * HOUR)
    found[4] = replace(found[4], committed_at=found[4].committed_at - 9 * HOUR)

    assert kept(plan(found, keep_last=3)) == [600, 800, 1000]


def test_E82_a_pinned_best_takes_no_place_of_the_newest() -> None:
    found = line(100, 200, 300)
    found[0] = replace(found[0], pinned=True)

    assert kept(plan(found, keep_last=1)) == [100, 300]


def test_E84_a_new_line_of_low_steps_does_not_lose_to_the_old_one() -> None:
    old = [replace(one, on_line=False, off_line_since=NOW - HOUR) for one in line(500, 600, 700)]
    new = Candidate("new", 100, 4, NOW - SECOND, on_line=True)

    verdicts = plan([*old, new], keep_last=3)

    assert kept(verdicts) == [500, 600, 700, 100]
    assert codes(verdicts, 700) == ["off_line_kept"]
    assert codes(verdicts, 100) == ["just_committed", "keep_last"]
    assert kept(plan([*old, new], keep_last=3, off_line_seconds=60)) == [100]


def test_E85_a_stale_higher_step_off_the_line_holds_no_place() -> None:
    stale = Candidate("stale", 5000, 1, NOW - 900 * HOUR, on_line=False, off_line_since=NOW - 800 * HOUR)
    found = [stale, Candidate("c200", 200, 2, NOW - HOUR, on_line=True)]

    verdicts = plan(found, Needed(latest="c200"), keep_last=1)

    assert kept(verdicts) == [200]
    assert codes(verdicts, 5000) == ["off_line_long"]


@pytest.mark.parametrize("rules", [{"keep_last": 0}, {"every_steps": 0}, {"younger_than_seconds": 0}])
def test_E85_keeping_none_is_no_policy(rules: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        RetentionRules(**rules)


def test_what_is_needed_is_kept_whatever_the_policy_says() -> None:
    found = line(100, 200, 300, 400, 500)
    needed = Needed(latest="c400", resumed_from="c100", parents=frozenset({"c200"}))

    verdicts = plan(found, needed, tags=["none"])

    assert kept(verdicts) == [100, 200, 400, 500]
    assert [codes(verdicts, step) for step in (100, 200, 300, 400, 500)] == [
        ["resumed_from"], ["parent_of_open"], ["no_rule"], ["latest"], ["just_committed"],
    ]  # fmt: skip


def test_every_steps_keeps_the_first_at_or_after_each_multiple() -> None:
    found = line(0, 90, 180, 270, 360, 450, 1010, 1020)

    assert kept(plan(found, every_steps=200)) == [0, 270, 450, 1010, 1020]


@pytest.mark.parametrize(("mode", "expected"), [("min", [100, 300, 500]), ("max", [200, 400, 500])])
def test_best_counts_finite_values_only_and_the_earlier_of_equal_ones(mode: str, expected: list[int]) -> None:
    values: dict[int, float | str] = {100: 1.0, 200: 3.0, 300: 1.5, 400: 2.9, 500: "-Infinity"}
    found = [replace(one, metrics={"loss": values[one.step]}) for one in line(*values)]

    assert kept(plan(found, best=[{"metric": "loss", "mode": mode, "count": 2}])) == expected
    same = [replace(one, metrics={"loss": 1.0}) for one in line(100, 200, 300)]
    assert kept(plan(same, best=[{"metric": "loss", "mode": mode}])) == [100, 300]
    assert kept(plan(line(100, 200, 300), best=[{"metric": "loss", "mode": mode}])) == [300]


def test_tags_and_age_hold_off_the_line_too() -> None:
    found = [replace(one, on_line=False, off_line_since=NOW - 900 * HOUR) for one in line(100, 200, 300)]
    found[0] = replace(found[0], tags=frozenset({"paper", "x"}))

    verdicts = plan(found, tags=["paper"], younger_than_seconds=3 * 3600)

    assert kept(verdicts) == [100, 200, 300]
    assert codes(verdicts, 100) == ["tagged"]
    assert codes(verdicts, 200) == ["younger_than"]


def test_damaged_ones_take_no_place_and_are_kept_for_a_while() -> None:
    found = [*line(100, 200), *(replace(one, quarantined=True) for one in line(1, 2, 300)[2:])]

    verdicts = plan(found, keep_last=2)

    assert kept(verdicts) == [100, 200, 300]
    assert "quarantined_kept" in codes(verdicts, 300)


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Candidate], RetentionRules, Needed]:
    count = draw(st.integers(1, 12))
    losses: list[float | str] = [1.0, 2.0, 3.0, "NaN"]
    found = [
        Candidate(
            f"c{sequence}",
            draw(st.integers(0, 50)) * 10,
            sequence,
            NOW - draw(st.integers(0, 100)) * HOUR,
            on_line=(on_line := draw(st.booleans())),
            off_line_since=None if on_line else NOW - draw(st.integers(0, 400)) * HOUR,
            pinned=draw(st.booleans()),
            quarantined=draw(st.booleans()),
            metrics={"loss": draw(st.sampled_from(losses))},
        )
        for sequence in range(1, count + 1)
    ]
    rules = RetentionRules(
        keep_last=draw(st.none() | st.integers(1, 5)),
        every_steps=draw(st.none() | st.integers(1, 200)),
        best=[BestRule(metric="loss", mode="min", count=draw(st.integers(1, 3)))],
    )
    some = draw(st.none() | st.sampled_from([one.id for one in found]))
    return found, rules, Needed(latest=some, resumed_from=some)


@given(runs())
def test_any_plan_keeps_the_newest_the_needed_and_the_pinned_and_is_stable(
    drawn: tuple[list[Candidate], RetentionRules, Needed],
) -> None:
    found, rules, needed = drawn
    verdicts = plan_retention(found, rules, needed, now=NOW)
    survivors = [verdict.candidate for verdict in verdicts if verdict.kept]

    assert len(verdicts) == len(found)
    assert all(verdict.reasons for verdict in verdicts)
    assert found[-1] in survivors
    assert all(one in survivors for one in found if one.pinned or one.id in {needed.latest, needed.resumed_from})
    again = plan_retention(survivors, rules, needed, now=NOW)
    assert all(verdict.kept for verdict in again)
    last = [one for one in found if one.on_line and not one.quarantined][-(rules.keep_last or 0) :]
    assert rules.keep_last is None or all(one in survivors for one in last)
