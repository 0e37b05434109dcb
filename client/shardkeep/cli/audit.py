"""`shardkeep audit`: who changed what, when."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from shardkeep.cli.exit_codes import usage_error
from shardkeep.cli.human_text import parse_duration
from shardkeep.cli.invocation import Invocation
from shardkeep.cli.output import Screen
from shardkeep.protocol.messages import AuditEntryInfo

DEFAULT_LIMIT = 50


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(
    context: typer.Context,
    *,
    project: Annotated[str | None, typer.Option("--project", help="Changes in this project.")] = None,
    actor: Annotated[str | None, typer.Option("--actor", help="A token's id, worker or operator.")] = None,
    action: Annotated[str | None, typer.Option("--action", help="checkpoint.delete, or a whole noun: token.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="What was changed.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="A time, or how long ago: 7d, 12h.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="A time, or how long ago.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = DEFAULT_LIMIT,
    everything: Annotated[bool, typer.Option("--all", "-a", help="No limit.")] = False,
) -> None:
    """List changes, newest first: who did what to what, when."""
    invocation: Invocation = context.obj
    query = {"project": project, "actor": actor, "action": action, "target": target, "since": since, "until": until}
    for name in ("since", "until"):
        text = query[name]
        query[name] = None if text is None else _moment(text)
    found = list(invocation.access.audit(query, limit=None if everything else limit))
    invocation.output.answer({"entries": found}, show=lambda screen: _show(screen, found))


def _show(screen: Screen, found: Sequence[AuditEntryInfo]) -> None:
    rows = [
        (
            f"{entry.at:%Y-%m-%d %H:%M:%S}",
            entry.actor_name,
            entry.action,
            entry.project or "-",
            entry.target,
            _detail(entry.detail),
        )
        for entry in found
    ]
    screen.table(("WHEN (UTC)", "WHO", "ACTION", "PROJECT", "TARGET", "DETAIL"), rows)


def _detail(detail: Mapping[str, Any] | None) -> str:
    return " ".join(f"{name}={json.dumps(value)}" for name, value in (detail or {}).items())


def _moment(text: str) -> str:
    """UTC, ISO 8601, of a time or of how long ago it was."""
    try:
        return (datetime.now(UTC) - timedelta(seconds=parse_duration(text))).isoformat()
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError as exc:
        raise usage_error(f"{text!r} is no time; write 2026-11-29T12:00, or how long ago: 7d, 12h, 45m") from exc
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).isoformat()
