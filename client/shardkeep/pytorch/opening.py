"""What a Checkpointer is made from: options that can work, state items by name, and the run."""

from __future__ import annotations

from collections.abc import Mapping

from shardkeep.errors import ConfigurationError, NotFound
from shardkeep.store.connect import Client, CodecName, connect
from shardkeep.store.run import Run


def check_options(*, every_steps: int | None, every_minutes: float | None, on_error: str) -> None:
    """Refuse options that cannot work."""
    if every_steps is not None and every_steps < 1:
        raise ConfigurationError(f"every_steps={every_steps} is below 1")
    if every_minutes is not None and every_minutes <= 0:
        raise ConfigurationError(f"every_minutes={every_minutes} is not above 0")
    if on_error not in {"log", "raise"}:
        raise ConfigurationError(f'on_error={on_error!r} is neither "log" nor "raise"')


def merge_items(items: Mapping[str, object], state: Mapping[str, object]) -> dict[str, object]:
    """The state items by name; a name given twice is refused."""
    twice = sorted(items.keys() & state.keys())
    if twice:
        raise ConfigurationError(f"{', '.join(twice)} given both as a keyword and in state; leave one out")
    return {**items, **state}


def open_run(run: Run | str, *, staging_bytes: int | None, codec: CodecName | None) -> tuple[Client | None, Run]:
    """The run to use, and the client to close with the keeper where the keeper made it."""
    if isinstance(run, Run):
        return None, run.with_settings(staging_bytes=staging_bytes, codec=codec)
    client = connect(staging_bytes=staging_bytes, codec=codec or "auto")
    return client, client.run(run)


def has_checkpoints(run: Run) -> bool:
    """Whether anything was ever saved to the run, committed or not; a run the service does not know has nothing."""
    try:
        return run.info().checkpoints > 0
    except NotFound:
        return False
