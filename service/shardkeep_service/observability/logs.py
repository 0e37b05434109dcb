"""Logs: one JSON object a line on standard error, ours and those of the libraries alike, without secrets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from typing import Final

import structlog
from structlog.typing import Processor

from shardkeep_service.observability.redaction import Redactor
from shardkeep_service.observability.trace_context import add_trace

_QUIET: Final = ("uvicorn.error", "alembic.runtime.migration")


def configure_logs(level: str = "INFO", *, secrets: Collection[str] = ()) -> None:
    """Sends structlog's and the standard library's logs to standard error as JSON. Called once, by the command line.

    `secrets` are values that no line ever shows, beside what is recognised by its shape. Below INFO the libraries speak
    too, of headers and signatures: that is for looking for a fault, not for every day.
    """
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_trace,
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    redactor = Redactor(secrets)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                redactor.hide_members,
                structlog.processors.JSONRenderer(default=str),
                redactor.hide_text,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level) if root.level >= logging.INFO else level)
