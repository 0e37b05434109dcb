"""A memory store whose deletes may come late, or twice: requests that were lost on the way and repeated."""

from __future__ import annotations

from collections.abc import Sequence

from shardkeep_service.blob_store.memory import MemoryBlobStore


class LateStore(MemoryBlobStore):
    """`late` holds the deletes that are still on their way; every delete comes a second time, some only then."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[tuple[str, ...]] = []
        self.next_delete_is_late = False

    def delete(self, keys: Sequence[str]) -> None:
        """See BlobStore."""
        if keys:
            self.late.append(tuple(keys))
        if not self.next_delete_is_late:
            super().delete(keys)
        self.next_delete_is_late = False

    def arrive(self, index: int) -> None:
        """One of the late deletes arrives."""
        if self.late:
            super().delete(self.late.pop(index % len(self.late)))

    def content(self) -> dict[str, bytes]:
        """All objects."""
        return dict(self._objects)
