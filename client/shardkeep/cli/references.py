"""What names a checkpoint on the command line, and finding the checkpoint it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shardkeep.cli.exit_codes import CommandError, ExitCode, usage_error
from shardkeep.cli.output import Output
from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import CheckpointNotCommitted, NotFound
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.identifiers import HEX_32, split_run_name
from shardkeep.protocol.messages import CheckpointInfo, CheckpointState, CheckpointSummary, PassedOver

REFERENCE_HELP = "A checkpoint id, project/run (its latest), project/run@latest or project/run@STEP."
_ID = re.compile(rf"ckp_{HEX_32}")
_STEP = re.compile(r"\d{1,19}")
_LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ById:
    """A checkpoint by its id, in any state."""

    checkpoint_id: str


@dataclass(frozen=True, slots=True)
class OfRun:
    """A run's latest checkpoint, or its checkpoint of one step."""

    project: str
    run: str
    step: int | None

    @property
    def name(self) -> str:
        """`project/run`."""
        return f"{self.project}/{self.run}"


Reference = ById | OfRun


def parse_reference(text: str) -> Reference:
    """The reference in `text`; ConfigurationError or a usage error says what it could be."""
    if _ID.fullmatch(text):
        return ById(text)
    if "/" not in text:
        raise usage_error(f"{text!r} names no checkpoint. {REFERENCE_HELP}", code="malformed_reference")
    name, at, which = text.partition("@")
    project, run = split_run_name(name)
    if not at or which == _LATEST:
        return OfRun(project, run, None)
    if not _STEP.fullmatch(which):
        raise usage_error(f"after @ comes a step or {_LATEST!r}, not {which!r}", code="malformed_reference")
    return OfRun(project, run, int(which))


def find_checkpoint(
    service: ServiceClient,
    text: str,
    output: Output,
    *,
    states: Sequence[CheckpointState] = (CheckpointState.COMMITTED,),
) -> CheckpointInfo:
    """The checkpoint that `text` names: by id in any state, by step among those in `states`, earlier states first.

    Of several with one step the one on the line of the run's current attempt is meant; several off the line are
    ambiguous, and the error lists them.
    """
    reference = parse_reference(text)
    if isinstance(reference, ById):
        return service.checkpoint(reference.checkpoint_id)
    if reference.step is None:
        return _latest(service, reference)
    chosen = choose(list(service.checkpoints(reference.project, reference.run, step=reference.step)), reference, states)
    if not chosen.on_line and chosen.state is CheckpointState.COMMITTED:
        output.note(f"{chosen.id} (step {chosen.step}) is not on the line of {reference.name}'s current attempt")
    return service.checkpoint(chosen.id)


def choose(
    found: Sequence[CheckpointSummary], reference: OfRun, states: Sequence[CheckpointState]
) -> CheckpointSummary:
    """The one checkpoint among those of a step that is meant; CommandError or NotFound if there is none or no one."""
    for state in states:
        matching = [summary for summary in found if summary.state is state]
        on_line = [summary for summary in matching if summary.on_line]
        if on_line:
            return max(on_line, key=lambda summary: (summary.sequence or 0, summary.opened_at))
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise _ambiguous(reference, matching)
    raise _not_there(reference, found, states)


def _latest(service: ServiceClient, reference: OfRun) -> CheckpointInfo:
    answer = service.latest(reference.project, reference.run)
    if answer.checkpoint is not None:
        return answer.checkpoint
    raise CheckpointNotCommitted(
        f"{reference.name} has no committed checkpoint{_reasons(answer.passed_over)}",
        code=ErrorCode.CHECKPOINT_NOT_COMMITTED,
        status=404,
        extra={"passed_over": answer.passed_over},
    )


def _reasons(passed_over: Sequence[PassedOver]) -> str:
    if not passed_over:
        return ""
    shown = [f"{item.checkpoint_id} (step {item.step}): {item.reason}" for item in passed_over[:5]]
    return ":\n  " + "\n  ".join(shown) + (f"\n  and {len(passed_over) - 5} more" if len(passed_over) > 5 else "")


def _ambiguous(reference: OfRun, matching: Sequence[CheckpointSummary]) -> CommandError:
    listed = "\n  ".join(
        f"{item.id} (attempt {item.attempt_number}, opened {item.opened_at:%Y-%m-%d %H:%M:%S})" for item in matching
    )
    return CommandError(
        f"{len(matching)} {matching[0].state.value} checkpoints of {reference.name} have step {reference.step}, none "
        f"on the run's line; give the id of one:\n  {listed}",
        code="ambiguous_step",
        exit_code=ExitCode.NOT_FOUND,
        candidates=tuple(item.id for item in matching),
    )


def _not_there(reference: OfRun, found: Sequence[CheckpointSummary], states: Sequence[CheckpointState]) -> NotFound:
    if not found:
        return NotFound(
            f"{reference.name} has no checkpoint of step {reference.step}; see `shardkeep ls {reference.name} --all`",
            code=ErrorCode.UNKNOWN_CHECKPOINT,
            status=404,
        )
    wanted = " or ".join(state.value for state in states)
    return CheckpointNotCommitted(
        f"{reference.name} has no {wanted} checkpoint of step {reference.step}: "
        + ", ".join(f"{item.id} is {item.state.value}" for item in found),
        code=ErrorCode.CHECKPOINT_NOT_COMMITTED,
        status=404,
        extra={"states": {item.id: item.state.value for item in found}},
    )
