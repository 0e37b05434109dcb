"""Keeping signed URLs out of logs: urllib3 writes whole URLs when somebody asks for its debug messages."""

from __future__ import annotations

import logging
from typing import Final

_MARKS: Final = ("x-amz-signature=", "x-amz-credential=", "signature=")


class RedactSignedQueries(logging.Filter):
    """Cuts the query from arguments that hold a signature; every record passes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record in place."""
        if isinstance(record.args, tuple):
            record.args = tuple(_redacted(item) for item in record.args)
        return True


def redact_urllib3_logs() -> None:
    """Once a process, however often it is called."""
    logger = logging.getLogger("urllib3.connectionpool")
    if not any(isinstance(item, RedactSignedQueries) for item in logger.filters):
        logger.addFilter(RedactSignedQueries())


def _redacted(item: object) -> object:
    if isinstance(item, str) and any(mark in item.lower() for mark in _MARKS):
        return f"{item.partition('?')[0]}?(signed)"
    return item
