"""Where the chunks of a load are fetched from: asked for in batches, and again when a target has expired."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

from shardkeep.connection.service_client import ServiceClient
from shardkeep.connection.target_lifetimes import HeldTarget
from shardkeep.errors import InvalidRequest, PermissionDenied, Unauthenticated
from shardkeep.format.segments import ChunkRef
from shardkeep.protocol.versions import NEGOTIATE_LIMIT


class ChunkTargets:
    """The chunks of one load, in the order in which they will be read. Thread-safe."""

    def __init__(self, service: ServiceClient, checkpoint_id: str, digests: Iterable[str]) -> None:
        self._service = service
        self._checkpoint_id = checkpoint_id
        self._order = list(dict.fromkeys(digests))
        self._position = {digest: place for place, digest in enumerate(self._order)}
        self._held: dict[str, HeldTarget] = {}
        self._lock = threading.Lock()

    def read_into(self, chunk: ChunkRef, offset: int, parts: Sequence[memoryview]) -> None:
        """Fill `parts` with the chunk's stored bytes from `offset` on; a target that has expired is asked for again."""
        held = self._current(chunk.digest)
        try:
            self._service.read_range_into(held.target, chunk, offset, parts)
        except (PermissionDenied, Unauthenticated, InvalidRequest):
            if not held.may_have_expired():
                raise
            self._service.read_range_into(self._other_than(held, chunk.digest).target, chunk, offset, parts)

    def _current(self, digest: str) -> HeldTarget:
        with self._lock:
            held = self._held.get(digest)
            return self._ask(digest) if held is None or held.is_expiring() else held

    def _other_than(self, refused: HeldTarget, digest: str) -> HeldTarget:
        with self._lock:
            held = self._held[digest]
            return self._ask(digest) if held is refused else held

    def _ask(self, digest: str) -> HeldTarget:
        """Targets of this chunk and of those that are read next; a few requests serve a load of any size."""
        start = self._position[digest]
        batch = self._order[start : start + NEGOTIATE_LIMIT]
        targets = self._service.read_targets(self._checkpoint_id, batch)
        received = time.monotonic()
        self._held.update((name, HeldTarget(target, received)) for name, target in zip(batch, targets, strict=True))
        return self._held[digest]
