"""Logs: one JSON object a line on standard error, ours and those of the libraries alike."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

_SECRET_MEMBERS = frozenset({"authorization", "token", "cookie", "x-amz-signature", "x-amz-security-token"})


def configure_logs(level: str = "INFO") -> None:
    """Sends structlog's and the standard library's logs to standard error as JSON. Called once, by the command line."""
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _drop_secrets,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for quiet in ("uvicorn.error", "alembic.runtime.migration"):
        logging.getLogger(quiet).setLevel("WARNING")


def _drop_secrets(_logger: Any, _method: str, event: EventDict) -> EventDict:
    for name in _SECRET_MEMBERS.intersection(event):
        event[name] = "[hidden]"
    return event
