"""`shardkeep save-now`: asking a job that trains somewhere to save at its next step."""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from shardkeep.cli.exit_codes import CommandError, ExitCode
from shardkeep.cli.invocation import Invocation
from shardkeep.protocol.identifiers import split_run_name
from shardkeep.protocol.messages import CheckpointInfo, SaveRequestInfo

_LOOK_SECONDS: Final = 0.5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("save-now")(save_now)


def save_now(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="The run that is being trained.")],
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Until the checkpoint is committed.")] = False,
) -> None:
    """Ask training to save at its next step. While a request waits, asking again is the same one."""
    invocation: Invocation = context.obj
    asked = invocation.requests.request_save(*split_run_name(run))
    if not wait:
        text = f"{run} is asked to save at its next step: request {asked.number} of {asked.attempt_id}"
        invocation.output.answer({"save_request": asked, "checkpoint": None}, show=lambda screen: screen.line(text))
        return
    done = _wait(invocation, run, asked)
    saved = _checkpoint_of(invocation, done)
    text = f"{saved.id} (step {saved.step} of {run}) is {saved.state.value}"
    invocation.output.answer({"save_request": done, "checkpoint": saved}, show=lambda screen: screen.line(text))


def _wait(invocation: Invocation, run: str, asked: SaveRequestInfo) -> SaveRequestInfo:
    """The request once it is done; a later one, if somebody asked again after it was taken up, will do as well."""
    told: tuple[str, str | None] | None = None
    present = asked
    while present.state != "done":
        if (present.state, present.checkpoint_id) != told:
            told = present.state, present.checkpoint_id
            invocation.output.note(_describe(run, present))
        time.sleep(_LOOK_SECONDS)
        present = invocation.requests.save_request(*split_run_name(run))
        if present.attempt_id != asked.attempt_id:
            raise CommandError(
                f"a newer attempt of {run} began before the save was made; ask again once it trains",
                code="attempt_ended",
                exit_code=ExitCode.FAILED,
            )
    return present


def _describe(run: str, present: SaveRequestInfo) -> str:
    if present.state == "saving":
        return f"{run} is being saved as {present.checkpoint_id}"
    if present.checkpoint_id is not None:
        return f"the save {present.checkpoint_id} of {run} was aborted; request {present.number} waits for the next one"
    return f"request {present.number} waits for the next step of {run}"


def _checkpoint_of(invocation: Invocation, done: SaveRequestInfo) -> CheckpointInfo:
    assert done.checkpoint_id is not None  # it is done
    return invocation.service.checkpoint(done.checkpoint_id)
