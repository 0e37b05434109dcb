"""Handing one rank's shard over: what the caller stages goes on in background threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from shardkeep.format.buffers import Buffer
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind, ValueRecord
from shardkeep.format.values import encode_value
from shardkeep.store.big_values import big_value_name
from shardkeep.store.save_handle import SaveHandle
from shardkeep.uploader.shard_upload import ShardUpload
from shardkeep.uploader.staging import Fill


class SaveWriter:
    """One save of one rank while it is being staged. Used by one thread; end it with `finish` or `abort`.

    As a context manager it aborts when left without `finish`.
    """

    def __init__(self, upload: ShardUpload, *, publish: Callable[[], SaveHandle]) -> None:
        self._upload = upload
        self._big_values: set[str] = set()
        self._publish = publish

    @property
    def save_number(self) -> int:
        """Which save of the attempt this is, counted from 0 alike on all ranks."""
        return self._upload.save

    @property
    def is_finished(self) -> bool:
        """Whether `finish` or `abort` was called, or staging failed."""
        return self._upload.is_staged

    def stage(
        self,
        name: str,
        dtype: str,
        shape: Sequence[int],
        region: Region,
        kind: SliceKind,
        *,
        witness: bool = False,
        fill: Fill,
    ) -> None:
        """Take over the bytes of `region`; when this returns the source may change.

        `fill(start_byte, out)` writes `out.nbytes` of the region's row-major bytes from `start_byte` on into `out`; it
        is called in this thread, in order. An empty region records that this rank knows the tensor; a witness is
        fingerprinted and not stored.
        """
        self._upload.stage(name, dtype, tuple(shape), region, kind, witness=witness, fill=fill)

    def stage_value(self, path: str, value: object, *, per_rank: bool) -> ValueRecord:
        """The record of one value at a joined path, its big leaves staged; UnsupportedValue names what cannot be."""
        return ValueRecord(path, encode_value(value, path=path, extract=self._stage_leaf), per_rank)

    def _stage_leaf(self, _path: str, data: Buffer) -> str:
        view = memoryview(data).cast("B")
        name = big_value_name(view)
        if name not in self._big_values:
            self._big_values.add(name)
            self._stage_bytes(name, view)
        return name

    def _stage_bytes(self, name: str, view: memoryview) -> None:
        def fill(start: int, out: memoryview) -> None:
            out[:] = view[start : start + out.nbytes]

        shape = (view.nbytes,)
        self._upload.stage(name, "uint8", shape, Region.whole(shape), SliceKind.VALUE, witness=False, fill=fill)

    def finish(
        self,
        values: Sequence[ValueRecord] = (),
        metrics: Mapping[str, float] | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> SaveHandle:
        """All is staged; the rest goes on in background threads until all ranks have committed."""
        self._upload.finish(values, metrics or {}, environment or {})
        return self._publish()

    def abort(self, reason: str) -> SaveHandle:
        """Give up: the checkpoint is aborted, so that no other waits for it."""
        self._upload.abort(reason)
        return self._publish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not self.is_finished:
            self.abort(f"staging failed: {error!r}" if error is not None else "staging was not finished")
