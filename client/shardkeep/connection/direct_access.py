"""Whether bulk bytes go to the object store itself, and what one client found out about it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from shardkeep.connection.retries import RetryPolicy
from shardkeep.errors import ServiceError, ShardkeepError

_log = logging.getLogger("shardkeep")
_UNREACHED_SHARE: Final = 0.1
"""Of the retry window is spent on a store that never answered: streaming through the service is the other way."""


class DirectAccess:
    """Allowed until the store cannot be used; then everything is streamed, until `try_again`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._allowed = True
        self._reached = False

    @property
    def allowed(self) -> bool:
        """Whether targets of the object store may be asked for."""
        return self._allowed

    def try_again(self) -> None:
        """A new attempt begins: perhaps the store can be reached by now."""
        with self._lock:
            self._allowed, self._reached = True, False

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Around a request to the store: whatever it answers, it has been reached."""
        try:
            yield
        except ServiceError:
            self._reached = True
            raise
        self._reached = True

    def policy(self, policy: RetryPolicy) -> RetryPolicy:
        """How long to try: a store that answered before gets the whole window, also for broken connections."""
        if self._reached:
            return policy
        return dataclasses.replace(policy, unanswered_seconds=policy.window_seconds * _UNREACHED_SHARE)

    def give_up(self, url: str, error: ShardkeepError) -> None:
        """Stream from now on; said once."""
        with self._lock:
            was_allowed, self._allowed = self._allowed, False
        if was_allowed:
            _log.warning(
                "the object store at %s cannot be used from here, so chunks go through the service from now on: %s; "
                "correct the service's S3 public endpoint (SHARDKEEP_SERVICE_S3_PUBLIC_ENDPOINT_URL), this machine's "
                "proxy or SHARDKEEP_STORE_CA_BUNDLE, or set SHARDKEEP_SERVICE_DIRECT=never",
                urlsplit(url).netloc.rpartition("@")[2],
                error,
            )
