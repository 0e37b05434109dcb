"""`shardkeep push`: safetensors files as a checkpoint of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shardkeep.cli.exit_codes import refusal
from shardkeep.cli.human_text import counted, size_text
from shardkeep.cli.import_plan import ImportedTensor, environment_of, imported_aliases, launch_id_of, plan_import
from shardkeep.cli.invocation import Invocation, installed_version
from shardkeep.cli.output import Output, Screen
from shardkeep.cli.safetensors_source import TensorSource
from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import NotFound
from shardkeep.format.names import join_name
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind, ValueRecord
from shardkeep.format.values import encode_value
from shardkeep.protocol.identifiers import split_run_name
from shardkeep.protocol.messages import AttemptInfo, CheckpointInfo, CheckpointState, RunInfo
from shardkeep.store.attempt import Attempt
from shardkeep.store.checkpoint import Checkpoint
from shardkeep.store.stored_values import ALIASES
from shardkeep.store.world import World

_ALIASES_PATH = join_name(ALIASES)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("push")(push)


def push(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A .safetensors file, or a directory with an index.")],
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="The run; made if it does not exist.")],
    *,
    step: Annotated[int, typer.Option("--step", min=0, max=2**62, help="The step the checkpoint is of.")],
    new_attempt: Annotated[
        bool,
        typer.Option("--new-attempt", help="Push into a run that is in use. Its training can save no more afterwards."),
    ] = False,
) -> None:
    """Make safetensors files a checkpoint. Repeating a push that was interrupted, or was done, is safe."""
    invocation: Invocation = context.obj
    split_run_name(run)
    with TensorSource(path) as source:
        tensors = plan_import(source)
        with invocation.output.progress(f"reading {path.name}", source.size_bytes) as advance:
            launch_id = launch_id_of(run, step, tensors, advance)
        earlier = _earlier_attempts(invocation.service, run, launch_id)
        done = None if new_attempt else _already_pushed(invocation.service, run, step, earlier)
        if done is not None:
            _answer(invocation.output, done, tensors, was_there=True)
            return
        if not new_attempt:
            _refuse_if_in_use(invocation.service, run, earlier)
        ordinal = max((attempt.ordinal for attempt in earlier), default=-1) + 1
        committed = _save(invocation, source, tensors, run, step, World(0, 1, launch_id), ordinal)
    _answer(invocation.output, committed.info, tensors, was_there=False)


def _run_info(service: ServiceClient, run: str) -> RunInfo | None:
    try:
        return service.run_info(*split_run_name(run))
    except NotFound:
        return None


def _earlier_attempts(service: ServiceClient, run: str, launch_id: str) -> list[AttemptInfo]:
    """The attempts that earlier pushes of the same tensors to the same run and step began."""
    if _run_info(service, run) is None:
        return []
    return [attempt for attempt in service.run_attempts(*split_run_name(run)) if attempt.launch_id == launch_id]


def _already_pushed(
    service: ServiceClient, run: str, step: int, earlier: Sequence[AttemptInfo]
) -> CheckpointInfo | None:
    ours = {attempt.id for attempt in earlier}
    if not ours:
        return None
    for item in service.checkpoints(*split_run_name(run), step=step, state=CheckpointState.COMMITTED):
        if item.attempt_id in ours and not item.quarantined:
            return service.checkpoint(item.id)
    return None


def _refuse_if_in_use(service: ServiceClient, run: str, earlier: Sequence[AttemptInfo]) -> None:
    info = _run_info(service, run)
    if info is None or info.current_attempt_id is None or info.current_attempt_id in {item.id for item in earlier}:
        return
    raise refusal(
        f"{run} is in use: {counted(info.attempts, 'attempt')}, {counted(info.committed_checkpoints, 'checkpoint')}. "
        "Pushing begins a new attempt, so a training that still runs there can save no more, and the pushed checkpoint "
        "becomes its latest (the others stay loadable by id). Push to another run, or give --new-attempt if that is "
        "what you want",
        code="run_in_use",
    )


def _save(
    invocation: Invocation,
    source: TensorSource,
    tensors: Sequence[ImportedTensor],
    run: str,
    step: int,
    world: World,
    ordinal: int,
) -> Checkpoint:
    client = invocation.transfer_client()
    attempt = client.run(run).begin_attempt(world, ordinal, labels={"tool": "shardkeep-push"})
    try:
        attempt.decide_resume(fresh=True)
        return _stage(invocation.output, attempt, source, tensors, step)
    finally:
        attempt.close()


def _stage(
    output: Output, attempt: Attempt, source: TensorSource, tensors: Sequence[ImportedTensor], step: int
) -> Checkpoint:
    aliases = imported_aliases(source)
    values = [ValueRecord(_ALIASES_PATH, encode_value(aliases), per_rank=False)] if aliases else []
    with (
        attempt.start_save(step, expected_bytes=source.size_bytes) as writer,
        output.progress(f"pushing {len(tensors)} tensors", source.size_bytes) as advance,
    ):
        for item in tensors:

            def fill(start: int, out: memoryview, item: ImportedTensor = item) -> None:
                item.fill(start, out)
                advance(len(out))

            shape = item.tensor.shape
            writer.stage(item.name, item.tensor.dtype, shape, Region.whole(shape), SliceKind.PARAMETER, fill=fill)
        handle = writer.finish(values, environment=environment_of(source, version=installed_version()))
    return handle.wait()


def _answer(output: Output, info: CheckpointInfo, tensors: Sequence[ImportedTensor], *, was_there: bool) -> None:
    size = sum(item.tensor.size_bytes for item in tensors)
    document: dict[str, Any] = {
        "checkpoint": info,
        "tensors": len(tensors),
        "tensor_bytes": size,
        "already_there": was_there,
    }
    how = "was pushed before" if was_there else f"pushed, {size_text(info.new_bytes)} new"

    def show(screen: Screen) -> None:
        screen.line(
            f"{info.id} (step {info.step} of {info.project}/{info.run}): {counted(len(tensors), 'tensor')}, "
            f"{size_text(size)}, {how}"
        )

    output.answer(document, show=show)
