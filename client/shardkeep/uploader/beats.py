"""Keeping a rank's session alive while its save goes on, and learning that the save was aborted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import AttemptFenced, ShardkeepError
from shardkeep.protocol.messages import CheckpointState
from shardkeep.uploader.failures import error_of_abort
from shardkeep.uploader.save_identity import SaveIdentity

_log = logging.getLogger("shardkeep")
_BEAT_SECONDS: Final = 30.0


class Beats:
    """A thread that beats from `begin` until `stop` is set. `on_failure` gets an abort or the fence."""

    def __init__(
        self,
        service: ServiceClient,
        identity: SaveIdentity,
        *,
        stop: threading.Event,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._service = service
        self._identity = identity
        self._stop = stop
        self._on_failure = on_failure
        self._begun = threading.Event()
        self._session: tuple[str, float] | None = None
        # Started at once: near the interpreter's exit no thread can be.
        self._thread = threading.Thread(target=self._run, name="shardkeep-beat", daemon=False)
        self._thread.start()

    def begin(self, checkpoint_id: str, lease_seconds: float) -> None:
        """The rank has a session with this lease."""
        self._session = (checkpoint_id, lease_seconds)
        self._begun.set()

    def join(self) -> None:
        """Wait until the thread has ended, once `stop` is set."""
        self._begun.set()
        self._thread.join()

    def _run(self) -> None:
        self._begun.wait()
        if self._session is None:
            return
        checkpoint_id, lease_seconds = self._session
        while not self._stop.wait(min(_BEAT_SECONDS, lease_seconds / 4)):
            try:
                state = self._service.beat(checkpoint_id, self._identity.rank)
                if state.state is CheckpointState.ABORTED:
                    self._on_failure(error_of_abort(state.abort, step=self._identity.step))
            except AttemptFenced as error:
                self._on_failure(error)
            except ShardkeepError as error:
                _log.debug("a beat of step %d failed: %s", self._identity.step, error)
