"""Deciding which checkpoints of a run are kept, and why. Pure: plain data in, verdicts out, no clock and no database.

The order is the commit sequence, which no clock and no step can upset. What is not committed is no candidate and counts
for no rule.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from shardkeep.protocol.durations import duration_text
from shardkeep.protocol.messages import BestRule, RetentionRules
from shardkeep_service.moments import MICROS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Candidate:
    """A committed checkpoint. Times are microseconds of database time."""

    id: str
    step: int
    sequence: int
    committed_at: int
    on_line: bool
    off_line_since: int | None = None
    """When a rollback left it off the line; None on the line."""
    pinned: bool = False
    quarantined: bool = False
    tags: frozenset[str] = frozenset()
    metrics: Mapping[str, float | str] = field(default_factory=dict)
    """As stored: what is no finite number is text."""


@dataclass(frozen=True, slots=True)
class Needed:
    """Checkpoints that something needs now, whatever the rules say."""

    latest: str | None = None
    """What `latest` would answer."""
    resumed_from: str | None = None
    """The decision of the current attempt."""
    parents: frozenset[str] = frozenset()
    """Parents of unfinished checkpoints."""


class Why(StrEnum):
    """Codes of reasons. The first group keeps whatever the policy says, the second is the policy, the third deletes."""

    LATEST = "latest"
    JUST_COMMITTED = "just_committed"
    RESUMED_FROM = "resumed_from"
    PARENT_OF_OPEN = "parent_of_open"
    PINNED = "pinned"

    KEEP_LAST = "keep_last"
    EVERY_STEPS = "every_steps"
    BEST = "best"
    TAGGED = "tagged"
    YOUNGER_THAN = "younger_than"
    OFF_LINE_KEPT = "off_line_kept"
    QUARANTINED_KEPT = "quarantined_kept"

    NO_RULE = "no_rule"
    OFF_LINE_LONG = "off_line_long"
    QUARANTINED_LONG = "quarantined_long"


@dataclass(frozen=True, slots=True)
class Reason:
    """A code, and words for people."""

    code: Why
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Kept or deleted, with every reason: of a kept one all that keep it."""

    candidate: Candidate
    kept: bool
    reasons: tuple[Reason, ...]


def plan_retention(
    candidates: Sequence[Candidate], rules: RetentionRules, needed: Needed, *, now: int
) -> list[Verdict]:
    """A verdict on each committed checkpoint of one run, in the order of their commits."""
    ordered = sorted(candidates, key=lambda candidate: candidate.sequence)
    counted = [candidate for candidate in ordered if candidate.on_line and not candidate.quarantined]
    keeps: dict[str, list[Reason]] = defaultdict(list)
    for candidate_id, reason in (
        *_needed(ordered, needed),
        *_last(counted, rules),
        *_steps(counted, rules),
        *(kept for best in rules.best for kept in _best(counted, best)),
        *_each(ordered, rules, now=now),
    ):
        keeps[candidate_id].append(reason)
    return [_verdict(candidate, keeps[candidate.id], rules) for candidate in ordered]


def _verdict(candidate: Candidate, keeps: Collection[Reason], rules: RetentionRules) -> Verdict:
    if keeps:
        return Verdict(candidate, kept=True, reasons=tuple(keeps))
    span = duration_text(rules.off_line_seconds)
    if candidate.quarantined:
        reason = Reason(Why.QUARANTINED_LONG, f"it is damaged, and was committed more than {span} ago")
    elif candidate.on_line:
        reason = Reason(Why.NO_RULE, "no rule keeps it")
    else:
        reason = Reason(Why.OFF_LINE_LONG, f"a rollback left it off the line more than {span} ago")
    return Verdict(candidate, kept=False, reasons=(reason,))


def _needed(ordered: Sequence[Candidate], needed: Needed) -> Iterable[tuple[str, Reason]]:
    if needed.latest is not None:
        yield needed.latest, Reason(Why.LATEST, "a job that resumes now gets it")
    if ordered:
        yield ordered[-1].id, Reason(Why.JUST_COMMITTED, "it is the last that was committed")
    if needed.resumed_from is not None:
        yield needed.resumed_from, Reason(Why.RESUMED_FROM, "the current attempt resumed from it")
    for parent in needed.parents:
        yield parent, Reason(Why.PARENT_OF_OPEN, "a save is under way that builds on it")
    for candidate in ordered:
        if candidate.pinned:
            yield candidate.id, Reason(Why.PINNED, "it is pinned")


def _last(counted: Sequence[Candidate], rules: RetentionRules) -> Iterable[tuple[str, Reason]]:
    if rules.keep_last is None:
        return
    for place, candidate in enumerate(reversed(counted[-rules.keep_last :]), start=1):
        yield candidate.id, Reason(Why.KEEP_LAST, f"{place} of the last {rules.keep_last}")


def _steps(counted: Sequence[Candidate], rules: RetentionRules) -> Iterable[tuple[str, Reason]]:
    """The first at or after each multiple. What comes before the first multiple belongs to none, but step 0."""
    if rules.every_steps is None:
        return
    seen: set[int] = set()
    for candidate in counted:
        multiple = candidate.step // rules.every_steps
        if multiple in seen or (multiple == 0 and candidate.step):
            continue
        seen.add(multiple)
        text = f"the first at or after step {multiple * rules.every_steps}, a multiple of {rules.every_steps}"
        yield candidate.id, Reason(Why.EVERY_STEPS, text)


def _best(counted: Sequence[Candidate], best: BestRule) -> Iterable[tuple[str, Reason]]:
    """The best values; of equal ones the earlier."""
    sign = 1 if best.mode == "min" else -1
    valued = [(sign * value, candidate) for candidate in counted if (value := _metric(candidate, best)) is not None]
    ranked = sorted(valued, key=lambda item: (item[0], item[1].sequence))
    for place, (value, candidate) in enumerate(ranked[: best.count], start=1):
        text = f"{place} of the best {best.count} by {best.mode} {best.metric} ({sign * value:g})"
        yield candidate.id, Reason(Why.BEST, text)


def _metric(candidate: Candidate, best: BestRule) -> float | None:
    value = candidate.metrics.get(best.metric)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _each(ordered: Sequence[Candidate], rules: RetentionRules, *, now: int) -> Iterable[tuple[str, Reason]]:
    """What rules say of one checkpoint alone, on the line or off it."""
    for candidate in ordered:
        named = sorted(candidate.tags.intersection(rules.tags))
        if named:
            yield candidate.id, Reason(Why.TAGGED, f"it has the tag {', '.join(named)}")
        young = rules.younger_than_seconds
        if young is not None and candidate.committed_at > now - young * MICROS_PER_SECOND:
            yield candidate.id, Reason(Why.YOUNGER_THAN, f"it was committed less than {duration_text(young)} ago")
        since = now - rules.off_line_seconds * MICROS_PER_SECOND
        if candidate.quarantined:
            if candidate.committed_at > since:
                yield candidate.id, Reason(Why.QUARANTINED_KEPT, "it is damaged, and a save may heal it")
        elif not candidate.on_line and (candidate.off_line_since or candidate.committed_at) > since:
            text = f"a rollback left it off the line less than {duration_text(rules.off_line_seconds)} ago"
            yield candidate.id, Reason(Why.OFF_LINE_KEPT, text)
