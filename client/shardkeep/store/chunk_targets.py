"""Where the chunks of a load are fetched from: asked for in batches, and again when a target has expired.

A store that cannot be used from here is given up for the whole client; then the service itself gives the bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final

from shardkeep.connection.service_client import ServiceClient
from shardkeep.connection.store_answers import is_absent, needs_another_target
from shardkeep.connection.target_lifetimes import HeldTarget
from shardkeep.errors import ConnectionFailed, IntegrityError, NotFound, ServiceError
from shardkeep.format.segments import ChunkRef
from shardkeep.protocol.versions import NEGOTIATE_LIMIT

_FRESH_REFUSALS: Final = 3
"""Of targets just received for one read, before the store is given up."""


class _Refusals:
    """What the store refused of one read."""

    def __init__(self) -> None:
        self._fresh = 0
        self._absent = 0

    def are_final(self, refusal: ServiceError, *, fresh: bool) -> bool:
        """Whether no further target of the store is worth asking for; raises what no other target changes.

        An object that is absent may lie elsewhere by now, since its chunk was healed.
        """
        if is_absent(refusal):
            self._absent += 1
            if self._absent > 1:
                raise IntegrityError(f"its object is gone: {refusal}") from refusal
            return False
        if not needs_another_target(refusal):
            raise refusal
        self._fresh += fresh
        return self._fresh >= _FRESH_REFUSALS


class ChunkTargets:
    """The chunks of one load, in the order in which they will be read. Thread-safe."""

    def __init__(self, service: ServiceClient, checkpoint_id: str, digests: Iterable[str]) -> None:
        self._service = service
        self._checkpoint_id = checkpoint_id
        self._order = list(dict.fromkeys(digests))
        self._position = {digest: place for place, digest in enumerate(self._order)}
        self._held: dict[str, HeldTarget] = {}
        self._unknown: set[str] = set()
        self._lock = threading.Lock()

    def read_into(self, chunk: ChunkRef, offset: int, parts: Sequence[memoryview]) -> None:
        """Fill `parts` with the chunk's stored bytes from `offset` on; a target that has expired is asked for again.

        IntegrityError where the object is gone or was cut.
        """
        refusals = _Refusals()
        while True:
            held = self._current(chunk.digest)
            started = time.monotonic()
            try:
                self._service.read_range_into(held.target, chunk, offset, parts)
            except (ServiceError, ConnectionFailed) as failure:
                if not held.is_direct or held.is_last_resort or self._service.transport.is_closed:
                    raise
                if isinstance(failure, ConnectionFailed) or refusals.are_final(failure, fresh=held.was_fresh(started)):
                    self._service.direct.give_up(held.target.url, failure)
                self._forget(chunk.digest, held)
            else:
                return

    def _current(self, digest: str) -> HeldTarget:
        with self._lock:
            held = self._held.get(digest)
            if held is None or held.is_expiring() or not held.is_wanted(direct=self._service.direct.allowed):
                return self._ask(digest)
            return held

    def _forget(self, digest: str, refused: HeldTarget) -> None:
        with self._lock:
            if self._held.get(digest) is refused:
                del self._held[digest]

    def _ask(self, digest: str) -> HeldTarget:
        """Targets of this chunk and of those that are read next; a few requests serve a load of any size.

        Where less than a whole request is left, those before are asked for too: readers of them that meet the same
        trouble at the same time need not ask each for themselves.
        """
        start = min(self._position[digest], max(0, len(self._order) - NEGOTIATE_LIMIT))
        direct = self._service.direct.allowed
        while True:
            batch = [name for name in self._order[start : start + NEGOTIATE_LIMIT] if name not in self._unknown]
            try:
                targets = self._service.read_targets(self._checkpoint_id, batch, direct=direct)
                break
            except NotFound as refusal:  # of some; the others can be read
                unknown = set(refusal.extra.get("chunks", ())) & set(batch)
                if digest in unknown or not unknown:
                    raise
                self._unknown |= unknown
        received = time.monotonic()
        self._held.update(
            (name, HeldTarget(target, received, asked_direct=direct))
            for name, target in zip(batch, targets, strict=True)
        )
        return self._held[digest]
