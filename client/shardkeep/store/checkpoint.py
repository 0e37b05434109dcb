"""A checkpoint as readers see it: tensors, values, loading into a state, and keeping or letting it go."""

from __future__ import annotations

import functools
from collections.abc import MutableMapping, Sequence
from typing import Any

from shardkeep.connection.keeping_client import KeepingClient
from shardkeep.connection.service_client import ServiceClient
from shardkeep.format.manifest import Manifest, decode_manifest
from shardkeep.format.segments import SliceRecord
from shardkeep.protocol.messages import CheckpointInfo, CheckpointState, TensorInfo
from shardkeep.store.checkpoint_search import not_committed
from shardkeep.store.lazy_tensor import LazyTensor
from shardkeep.store.load_report import LoadReport
from shardkeep.store.name_search import TensorNames
from shardkeep.store.read_progress import ReadProgress
from shardkeep.store.reading import ReadRequest, RegionRead, VerifiedReader
from shardkeep.store.stored_values import ReadableValues, StoredValues, readable_values
from shardkeep.store.world import is_first_rank

__all__ = ["Checkpoint", "ReadRequest"]


class Checkpoint:
    """One checkpoint. Thread-safe for reading; what was read of its catalogue is kept."""

    def __init__(self, service: ServiceClient, info: CheckpointInfo, *, shows_progress: bool | None = None) -> None:
        """`shows_progress`: whether reading for over two seconds says so on stderr; by default rank 0 of the world."""
        self._service = service
        self._shows_progress = shows_progress
        self._info = info
        self._manifests: dict[int, Manifest] = {}

    @property
    def id(self) -> str:
        """The checkpoint's random id."""
        return self._info.id

    @property
    def step(self) -> int:
        """The step it keeps."""
        return self._info.step

    @property
    def info(self) -> CheckpointInfo:
        """What the service said of it last; `refresh` asks again."""
        return self._info

    @property
    def state(self) -> CheckpointState:
        """Where in its life it was when last looked at."""
        return self._info.state

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics saved with it: the mean over ranks, and rank 0's beside it."""
        return dict(self._info.metrics)

    def refresh(self) -> CheckpointInfo:
        """Ask the service again."""
        self._info = self._service.checkpoint(self.id)
        return self._info

    def __repr__(self) -> str:
        return f"Checkpoint({self.id}, step={self.step}, {self.state.value})"

    # --- reading -----------------------------------------------------------------------------------------------------

    def tensors(self, prefix: Sequence[str] = ()) -> list[TensorInfo]:
        """The tensors by name, those below the name parts `prefix`, without the bytes of big values."""
        return self._names.below(prefix)

    def resolve(self, name: str | Sequence[str]) -> str:
        """The stored name for itself, for its parts, or for a plain text that exactly one name has.

        NotFound, with the nearest names, if there is none.
        """
        return self._names.resolve(name)

    def tensor(self, name: str | Sequence[str]) -> LazyTensor:
        """A tensor that reads only the segments it is indexed for."""
        return LazyTensor(self._names.info(self.resolve(name)), self.read)

    def read(self, requests: Sequence[RegionRead], *, rank: int | None = None) -> None:
        """Read regions into memory: in parallel, every segment verified.

        `rank` picks that rank's variant of buffers that differ by rank. Raises NotFound for unknown names, LoadError
        for regions that do not fit, IntegrityError naming tensor, region and chunk for damaged bytes; after that last
        one the contents of the destinations are undefined.
        """
        self._check_readable()
        self._reader.read(requests, rank=rank)

    def values(self, rank: int = 0) -> dict[tuple[str, ...], Any]:
        """The values `rank` saved, by path."""
        self._check_readable()
        return self._values.of_rank(rank)

    def readable_values(self, rank: int | None = None) -> ReadableValues:
        """The values for `rank` of as many ranks as saved it, or for any rank of another world size (None).

        Unlike `values` it has what only other ranks saved and is global; a value is read when it is looked up.
        """
        self._check_readable()
        return readable_values(self.manifest, self._info.report, self._values.decode, rank=rank)

    def manifest(self, rank: int = 0) -> Manifest:
        """What one rank saved."""
        if rank not in self._manifests:
            self._manifests[rank] = decode_manifest(self._service.manifest(self.id, rank))
        return self._manifests[rank]

    def slices_of(self, rank: int, world_size: int) -> list[SliceRecord]:
        """The slices a rank saved, for reuse by its next save; none where the world has another size now."""
        return list(self.manifest(rank).slices()) if world_size == self._info.world_size else []

    def load_into(
        self,
        state: MutableMapping[str, Any],
        *,
        strict: bool = True,
        cast: bool = False,
        allow_missing: Sequence[str] = (),
        allow_unexpected: Sequence[str] = (),
        rank: int = 0,
    ) -> LoadReport:
        """Write the checkpoint into a nested dict in place: tensors into their memory, values replaced as a whole.

        All names, shapes and dtypes are checked before anything is written: MissingNames (with both lists),
        ShapeMismatch or DtypeMismatch. Names count below the state's own top-level keys; names allowed are these or
        above. With `strict=False` what fits is loaded and the report names the rest.
        """
        from shardkeep.store.plain_loads import load_into_state

        self._check_readable()
        return load_into_state(
            self,
            state,
            strict=strict,
            cast=cast,
            allow_missing=allow_missing,
            allow_unexpected=allow_unexpected,
            rank=rank,
        )

    # --- keeping -----------------------------------------------------------------------------------------------------

    def pin(self, reason: str = "") -> None:
        """Keep it whatever retention says."""
        self._info = self._service.pin(self.id, self._info.version, reason=reason)

    def unpin(self) -> None:
        """Leave it to retention again."""
        self._info = self._service.unpin(self.id, self._info.version)

    def delete(self) -> None:
        """Delete it; it can be restored until it is purged. Conflict if it changed since it was looked at."""
        self._info = self._service.delete(self.id, self._info.version)

    def restore(self) -> None:
        """Undo a delete."""
        self._info = self._service.restore(self.id, self._info.version)

    @property
    def tags(self) -> list[str]:
        """Its tags when it was last looked at."""
        return list(self._info.tags)

    def tag(self, name: str, *, only: bool = False) -> None:
        """Tag it, "best" say; with `only` the run's other checkpoints lose the tag."""
        self._info = self._keeping.tag(self.id, name, only=only)

    def untag(self, name: str) -> None:
        """Take a tag from it."""
        self._info = self._keeping.untag(self.id, name)

    # --- how ---------------------------------------------------------------------------------------------------------

    @property
    def _keeping(self) -> KeepingClient:
        return KeepingClient(self._service.transport)

    def _check_readable(self) -> None:
        if self._info.state is not CheckpointState.COMMITTED:
            self.refresh()
        if self._info.state is not CheckpointState.COMMITTED or self._info.quarantined:
            raise not_committed(self._info)

    @functools.cached_property
    def _names(self) -> TensorNames:
        self._check_readable()
        return TensorNames(self._service.tensors(self.id), checkpoint_id=self.id)

    @functools.cached_property
    def _reader(self) -> VerifiedReader:
        shows = self._shows_progress
        progress = ReadProgress(f"step {self.step}", is_first_rank if shows is None else lambda: bool(shows))
        return VerifiedReader(self._service, self.id, progress)

    @functools.cached_property
    def _values(self) -> StoredValues:
        return StoredValues(self.manifest, self.read)
