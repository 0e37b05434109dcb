"""`shardkeep retention`: the policies of projects and runs, what they would delete, and applying them now."""

from __future__ import annotations

from typing import Annotated

import typer

from shardkeep.cli.exit_codes import usage_error
from shardkeep.cli.human_text import counted, parse_duration, size_text
from shardkeep.cli.invocation import Invocation
from shardkeep.cli.output import Screen
from shardkeep.cli.retention_text import parse_best, policy_lines, verdict_rows
from shardkeep.protocol.identifiers import is_name, split_run_name
from shardkeep.protocol.messages import RetentionAnswer, RetentionPlanAnswer, RetentionRules

Where = Annotated[str, typer.Argument(metavar="PROJECT[/RUN]", help="A run's policy stands instead of its project's.")]
Last = Annotated[int | None, typer.Option("--keep-last", min=1, help="Keep the newest N on the line.")]
Steps = Annotated[
    int | None, typer.Option("--every-steps", min=1, help="Keep the first at or after each multiple of N steps.")
]
Best = Annotated[
    list[str] | None, typer.Option("--best", metavar="METRIC:min|max[:N]", help="Keep the best N. May be repeated.")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Keep those with this tag. May be repeated.")]
Younger = Annotated[
    str | None, typer.Option("--younger-than", metavar="DURATION", help="Keep those committed since: 12h, 30d.")
]
OffLine = Annotated[
    str | None,
    typer.Option("--off-line", metavar="DURATION", help="Keep what a rollback left for so long; default 7d."),
]

commands = typer.Typer(no_args_is_help=True, help="Policies by which checkpoints are kept.")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(commands, name="retention")


@commands.command("show")
def show(context: typer.Context, where: Where) -> None:
    """Show the policy set here, and the one in force."""
    invocation: Invocation = context.obj
    _answer_policy(invocation, invocation.keeping.policy(*_place(where)))


@commands.command("set")
def set_policy(
    context: typer.Context,
    where: Where,
    *,
    keep_last: Last = None,
    every_steps: Steps = None,
    best: Best = None,
    tag: Tags = None,
    younger_than: Younger = None,
    off_line: OffLine = None,
) -> None:
    """Set the policy in place of the one before. Try it first: `retention dry-run` takes the same options."""
    invocation: Invocation = context.obj
    rules = _rules(keep_last, every_steps, best, tag, younger_than, off_line)
    if rules is None:
        raise usage_error("give at least one rule; `shardkeep retention clear` keeps everything", code="empty_policy")
    _answer_policy(invocation, invocation.keeping.set_policy(*_place(where), rules))


@commands.command("clear")
def clear(context: typer.Context, where: Where) -> None:
    """Remove the policy set here: of a run its project's is in force again, without any everything is kept."""
    invocation: Invocation = context.obj
    _answer_policy(invocation, invocation.keeping.clear_policy(*_place(where)))


@commands.command("dry-run")
def dry_run(
    context: typer.Context,
    where: Where,
    *,
    keep_last: Last = None,
    every_steps: Steps = None,
    best: Best = None,
    tag: Tags = None,
    younger_than: Younger = None,
    off_line: OffLine = None,
) -> None:
    """Show what the policies in force, or (with options) other rules would keep and delete now, and why."""
    invocation: Invocation = context.obj
    rules = _rules(keep_last, every_steps, best, tag, younger_than, off_line)
    project, run = _place(where)
    _answer_plan(invocation, invocation.keeping.plan(project, run, rules))


@commands.command("apply")
def apply(context: typer.Context, where: Where) -> None:
    """Apply the policies in force now. What goes can be restored until it is purged."""
    invocation: Invocation = context.obj
    _answer_plan(invocation, invocation.keeping.apply(*_place(where)))


def _place(where: str) -> tuple[str, str | None]:
    if "/" in where:
        return split_run_name(where)
    if not is_name(where):
        raise usage_error(f"{where!r} cannot name a project")
    return where, None


def _rules(
    keep_last: int | None,
    every_steps: int | None,
    best: list[str] | None,
    tags: list[str] | None,
    younger_than: str | None,
    off_line: str | None,
) -> RetentionRules | None:
    """The rules of the options; None where there are none."""
    given = {
        "keep_last": keep_last,
        "every_steps": every_steps,
        "best": [parse_best(text) for text in best or ()],
        "tags": tags,
        "younger_than_seconds": _seconds(younger_than),
        "off_line_seconds": _seconds(off_line),
    }
    chosen = {name: value for name, value in given.items() if value}
    return RetentionRules.model_validate(chosen) if chosen else None


def _seconds(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise usage_error(str(error)) from error


def _answer_policy(invocation: Invocation, answer: RetentionAnswer) -> None:
    def shown(screen: Screen) -> None:
        for line in policy_lines(answer):
            screen.line(line)

    invocation.output.answer(answer.model_dump(mode="json"), show=shown)


def _answer_plan(invocation: Invocation, plan: RetentionPlanAnswer) -> None:
    def shown(screen: Screen) -> None:
        screen.table(("", "ID", "RUN", "STEP", "WHY"), verdict_rows(plan), right=("STEP",))
        went = "deleted" if plan.applied else "to be deleted"
        kept = "" if plan.applied else f"{counted(plan.kept, 'checkpoint')} kept, "
        freed = "" if plan.freed_bytes is None else f", {size_text(plan.freed_bytes)} freed once they are purged"
        screen.line(f"{kept}{counted(plan.deleted, 'checkpoint')} {went}{freed}")

    invocation.output.answer(plan.model_dump(mode="json"), show=shown)
    if plan.not_listed:
        invocation.output.note(f"{plan.not_listed} more are not listed")
    if plan.paused is not None:
        invocation.output.note(f"retention is paused, nothing is deleted: {plan.paused}")
