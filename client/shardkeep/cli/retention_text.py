"""Policies and their verdicts as a person reads and writes them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shardkeep.cli.exit_codes import usage_error
from shardkeep.protocol.durations import duration_text
from shardkeep.protocol.messages import BestRule, RetentionAnswer, RetentionPlanAnswer, RetentionPolicyInfo


def parse_best(text: str) -> BestRule:
    """`loss:min` or `loss:min:3` as a rule."""
    metric, _, rest = text.partition(":")
    mode, _, count = rest.partition(":")
    if not metric or mode not in {"min", "max"} or not (count or "1").isdigit() or int(count or 1) < 1:
        raise usage_error(f"{text!r} is no rule for the best: write METRIC:min, METRIC:max or METRIC:min:3")
    return BestRule.model_validate({"metric": metric, "mode": mode, "count": int(count or 1)})


def policy_lines(answer: RetentionAnswer) -> Iterator[str]:
    """What a policy says, one rule a line."""
    policy = answer.in_force
    if policy is None:
        yield "no policy: everything is kept"
        return
    where = policy.project if policy.run is None else f"{policy.project}/{policy.run}"
    yield f"policy of {where}, set by {policy.set_by} on {policy.set_at:%Y-%m-%d %H:%M} UTC; kept is"
    yield from (f"  {line}" for line in _rules(policy))
    if answer.paused is not None:
        yield f"retention is paused, nothing is deleted: {answer.paused}"


def verdict_rows(plan: RetentionPlanAnswer) -> list[tuple[str, str, str, str, str]]:
    """Rows of a table: deleted or kept, id, run, step, every reason."""
    went = "deleted" if plan.applied else "delete"
    return [
        (
            "keep" if verdict.kept else went,
            verdict.checkpoint_id,
            verdict.run,
            str(verdict.step),
            "; ".join(reason.text for reason in verdict.reasons),
        )
        for verdict in plan.verdicts
    ]


def _rules(policy: RetentionPolicyInfo) -> Iterator[str]:
    rules = policy.rules
    if rules.keep_last is not None:
        yield f"the last {rules.keep_last} on the line"
    if rules.every_steps is not None:
        yield f"the first at or after each multiple of {rules.every_steps} steps"
    for best in rules.best:
        yield f"the best {best.count} by {best.mode} {best.metric}"
    if rules.tags:
        yield f"what has one of the tags {', '.join(rules.tags)}"
    if rules.younger_than_seconds is not None:
        yield f"what was committed in the last {duration_text(rules.younger_than_seconds)}"
    yield f"what a rollback left off the line, for {duration_text(rules.off_line_seconds)}"
    yield "what is pinned, the latest, the last committed, and what a running job resumed from or builds on"
