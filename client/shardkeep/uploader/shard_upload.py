"""One rank's save, from the first staged byte to the commit.

The caller's thread stages; everything else happens in threads that the interpreter waits for at exit:
prepare workers (fingerprint, skip, encode, hash), send workers (offer, send), one that beats, and one that opens the
checkpoint, hands in the manifest, waits for the commit and cleans up. Whatever fails anywhere ends the save once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import AttemptFenced, Conflict, SaveConflict, SaveFailed, ShardkeepError
from shardkeep.format.dtypes import dtype_named
from shardkeep.format.manifest import build_manifest, encode_manifest
from shardkeep.format.regions import Region
from shardkeep.format.segments import SEGMENT_BYTES, SliceKind, SliceRecord, ValueRecord
from shardkeep.planning.packing import packing_group
from shardkeep.planning.reuse import History
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointState, OpenCheckpoint, StateAnswer
from shardkeep.uploader.arena import Arena, Lease
from shardkeep.uploader.codec_choice import CodecChooser
from shardkeep.uploader.committing import Committing
from shardkeep.uploader.failures import error_of_abort, error_of_failure
from shardkeep.uploader.pending_save import PendingSave
from shardkeep.uploader.preparation import Preparation
from shardkeep.uploader.progress import WaitProgress
from shardkeep.uploader.sending import Sending
from shardkeep.uploader.settings import UploadSettings
from shardkeep.uploader.staged import StagedChunk, StagedSegment, StagedSlice
from shardkeep.uploader.work_queue import Outstanding, WorkQueue

_log = logging.getLogger("shardkeep")
Fill = Callable[[int, memoryview], None]
BATCH_BYTES: Final = 4 << 20
"""Raw bytes that one prepare task works on."""
_BEAT_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class SaveIdentity:
    """Which save of which attempt, at which step, by which rank of how many."""

    attempt_id: str
    save: int
    step: int
    rank: int
    world_size: int


@dataclass(frozen=True, slots=True)
class _Handover:
    """What `finish` brought."""

    values: Sequence[ValueRecord]
    metrics: Mapping[str, float]
    environment: Mapping[str, Any]


class ShardUpload:
    """See the module. `stage`, `finish` and `abort` are for the thread that made it."""

    def __init__(
        self,
        service: ServiceClient,
        identity: SaveIdentity,
        *,
        history: History,
        arena: Arena,
        codecs: CodecChooser,
        settings: UploadSettings,
        expected_bytes: int,
    ) -> None:
        self._service = service
        self._identity = identity
        self._history = history
        self._arena = arena
        self._codecs = codecs
        self._budget_bytes = settings.staging_bytes
        self._keeps = self._budget_bytes is None or expected_bytes <= self._budget_bytes
        self._owner = threading.current_thread()
        self._slices: list[StagedSlice] = []
        self._chunks: list[StagedChunk] = []
        self._batch: list[StagedSegment] = []
        self._batch_bytes = 0
        self._batches = 0
        self._staged_bytes = 0
        self._activity = "being staged"
        self._handover: _Handover | None = None
        self._staged = threading.Event()
        self._opened = threading.Event()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._checkpoint_id: str | None = None
        self._chunks_under_way = 0
        self._outstanding = Outstanding()
        self.pending = PendingSave(identity.step, lambda: self._activity)
        arena.begin()
        self._start(settings)

    def _start(self, settings: UploadSettings) -> None:
        self._preparers = WorkQueue("prepare", settings.prepare_workers, on_error=self._fail)
        self._senders = WorkQueue("send", settings.send_workers, on_error=self._fail)
        self._preparation = Preparation(
            arena=self._arena,
            codecs=self._codecs,
            outstanding=self._outstanding,
            keep_bytes=lambda: self._keeps,
            on_chunk=self._send,
        )
        self._sending = Sending(
            self._service,
            rank=self._identity.rank,
            hashers=self._preparers,
            senders=self._senders,
            speed=self._codecs.upload_speed,
            stop=self._stop,
            on_stored=self._stored,
        )
        self._beats = threading.Thread(target=self._beat, name="shardkeep-beat", daemon=False)
        self._course = threading.Thread(target=self._run, name="shardkeep-save", daemon=False)
        self._beats.start()
        self._course.start()

    @property
    def save(self) -> int:
        """Which save of the attempt it is."""
        return self._identity.save

    @property
    def is_staged(self) -> bool:
        """Whether `finish` or `abort` was called."""
        return self._staged.is_set()

    @property
    def sent_bytes(self) -> int:
        """Bytes of chunks sent so far, without those the service had."""
        return self._sending.sent_bytes

    # --- the caller's thread -----------------------------------------------------------------------------------------

    def stage(
        self,
        name: str,
        dtype: str,
        shape: tuple[int, ...],
        region: Region,
        kind: SliceKind,
        *,
        witness: bool,
        fill: Fill,
    ) -> None:
        """See `SaveWriter.stage`. After a failure it does nothing: the handle tells."""
        if self._staged.is_set() and self._failure is None:
            raise RuntimeError("this save is finished; begin another with start_save()")
        element = dtype_named(dtype)
        raw_bytes = region.volume * element.item_bytes
        item = StagedSlice(name, element, shape, region, kind, witness, packing_group(kind, raw_bytes))
        self._slices.append(item)
        start = 0
        try:
            while start < raw_bytes:
                lease = self._arena.reserve(raw_bytes - start, before_waiting=self._make_room)
                if lease is None:
                    return
                fill(start, lease.view)
                self._take_over(item, lease)
                start += lease.view.nbytes
        except BaseException as error:
            self.abort(f"staging {name} failed: {error!r}")
            raise

    def finish(
        self, values: Sequence[ValueRecord], metrics: Mapping[str, float], environment: Mapping[str, Any]
    ) -> None:
        """All is staged."""
        self._hand_over_batch()
        self._handover = _Handover(tuple(values), dict(metrics), dict(environment))
        self._preparation.end_after(self._batches)
        self._activity = "being uploaded"
        self._staged.set()

    def abort(self, reason: str) -> None:
        """Give up."""
        step, rank = self._identity.step, self._identity.rank
        message = f"step {step} was not saved: rank {rank} gave up: {reason}"
        self._fail(SaveFailed(message, step=step, code=ErrorCode.ABORTED_BY_CLIENT, rank=rank))
        self._staged.set()

    def _take_over(self, item: StagedSlice, lease: Lease) -> None:
        size_bytes = lease.view.nbytes
        starts = range(0, size_bytes, SEGMENT_BYTES)
        self._arena.share(lease, len(starts))
        for start in starts:
            view = lease.view[start : start + SEGMENT_BYTES]
            segment = StagedSegment(item, len(item.segments), view, lease.extent)
            item.segments.append(segment)
            self._batch.append(segment)
            self._batch_bytes += view.nbytes
            if self._batch_bytes >= BATCH_BYTES:
                self._hand_over_batch()
        self._staged_bytes += size_bytes
        if self._keeps and self._budget_bytes is not None and self._staged_bytes > self._budget_bytes:
            self._stop_keeping()

    def _hand_over_batch(self) -> None:
        if not self._batch:
            return
        number, batch = self._batches, self._batch
        self._batches, self._batch, self._batch_bytes = number + 1, [], 0
        self._outstanding.begin()
        self._preparers.put(lambda: self._prepare(number, batch))

    def _make_room(self) -> None:
        """The budget is used up: send what is staged, and let go of what was sent."""
        self._stop_keeping()
        self._hand_over_batch()
        self._relieve()

    def _stop_keeping(self) -> None:
        with self._lock:
            was_keeping, self._keeps = self._keeps, False
            stored = [chunk for chunk in self._chunks if chunk.is_stored] if was_keeping else []
        for chunk in stored:
            self._let_go(chunk)

    # --- prepare and send workers ------------------------------------------------------------------------------------

    def _prepare(self, number: int, batch: Sequence[StagedSegment]) -> None:
        self._opened.wait()
        if self._stop.is_set():
            return
        self._preparation.prepare(number, batch)
        self._relieve()

    def _send(self, chunk: StagedChunk) -> None:
        with self._lock:
            self._chunks.append(chunk)
            self._chunks_under_way += 1
        self._sending.send(chunk)

    def _stored(self, chunk: StagedChunk) -> None:
        with self._lock:
            chunk.is_stored = True
            self._chunks_under_way -= 1
            keeps = self._keeps
        if not keeps:
            self._let_go(chunk)
        self._outstanding.end()
        self._relieve()

    def _relieve(self) -> None:
        """Send begun chunks early if staging waits for memory that nothing under way will free."""
        if self._arena.is_waited_for and not self._chunks_under_way:
            self._preparation.flush()

    def _let_go(self, chunk: StagedChunk) -> None:
        for segment, _ in chunk.packed.segments:
            with self._lock:
                extent, segment.extent = segment.extent, None
            if extent is not None:
                self._arena.release(extent)

    # --- the course of the save --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._open()
            self._wait_until_sent()
            self._commit()
        except Exception as error:  # noqa: BLE001 - a thread's edge: it ends the save and reaches its handle
            self._fail(error)
        finally:
            self._end()

    def _open(self) -> None:
        identity = self._identity
        message = OpenCheckpoint(
            save=identity.save, step=identity.step, rank=identity.rank, world_size=identity.world_size
        )
        try:
            answer = self._service.open_checkpoint(identity.attempt_id, message)
            self._checkpoint_id = answer.checkpoint_id
            self._lease_seconds = answer.lease_seconds
            self._preparation.history = self._history.usable_on(answer.parent_id)
            self._sending.open(answer.checkpoint_id)
            self.pending.opened(answer.checkpoint_id)
            if answer.state is CheckpointState.ABORTED:
                raise error_of_abort(self._service.state(answer.checkpoint_id).abort, step=identity.step)
        except SaveConflict as error:
            # The ranks that opened it at another step would wait for this one: let the end of this save abort it.
            self._checkpoint_id = error.extra.get("checkpoint_id")
            raise
        finally:
            self._opened.set()

    def _wait_until_sent(self) -> None:
        with WaitProgress(enabled=self._identity.rank == 0) as progress:
            while not self._stop.is_set():
                if self._staged.is_set() and self._outstanding.wait(_LOOK_SECONDS):
                    return
                self._staged.wait(_LOOK_SECONDS)
                if not self._staged.is_set() and not self._owner.is_alive():
                    self.abort("the thread that staged it ended before it was finished")
                self._show_at_exit(progress)

    def _commit(self) -> None:
        if self._stop.is_set():
            return
        assert self._checkpoint_id is not None
        self._activity = "waiting for the other ranks" if self._identity.world_size > 1 else "being committed"
        committing = Committing(
            self._service,
            checkpoint_id=self._checkpoint_id,
            rank=self._identity.rank,
            step=self._identity.step,
            stop=self._stop,
            heal=self._heal,
            on_state=self._note_state,
        )
        info = committing.commit(self._manifest())
        if info is not None:
            self.pending.prepare_commit(info, History.of(self._checkpoint_id, self._records()))

    def _note_state(self, state: StateAnswer) -> None:
        if state.state is CheckpointState.VALIDATING:
            self._activity = "being validated"
        elif state.waiting_for:
            shown = ", ".join(map(str, state.waiting_for[:8])) + (" ..." if len(state.waiting_for) > 8 else "")
            self._activity = f"waiting for ranks {shown}"

    def _records(self) -> list[SliceRecord]:
        return [item.record() for item in self._slices]

    def _manifest(self) -> bytes:
        assert self._handover is not None
        return encode_manifest(
            build_manifest(
                rank=self._identity.rank,
                world_size=self._identity.world_size,
                step=self._identity.step,
                slices=self._records(),
                values=self._handover.values,
                metrics=self._handover.metrics,
                environment=self._handover.environment,
            )
        )

    def _heal(self, missing: Sequence[str]) -> bytes:
        """Send chunks that the service lost again; the manifest that names what is stored now."""
        lost = set(missing)
        chunks = [chunk for chunk in self._chunks if chunk.ref is not None and chunk.ref.digest in lost]
        segments = [
            segment
            for item in self._slices
            for segment in item.segments
            if segment.reused is not None and segment.reused.chunk.digest in lost
        ]
        held = all(segment.is_held for segment in segments) and all(
            segment.is_held for chunk in chunks for segment, _ in chunk.packed.segments
        )
        if not held or not (chunks or segments):
            raise SaveFailed(
                f"step {self._identity.step} was not saved: the service lost chunks ({', '.join(missing[:3])}) whose "
                "staged bytes are gone; staging_bytes of the shard's size would have kept them",
                step=self._identity.step,
                code=ErrorCode.CHUNKS_MISSING,
                rank=self._identity.rank,
            )
        _log.warning("sending %d lost chunks of step %d again", len(lost), self._identity.step)
        for chunk in chunks:
            with self._lock:
                chunk.is_stored = False
                self._chunks_under_way += 1
            self._outstanding.begin()
            self._sending.offer(chunk)
        self._preparation.repack(segments)
        while not self._stop.is_set() and not self._outstanding.wait(_LOOK_SECONDS):
            continue
        return self._manifest()

    # --- beats and ends ----------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        self._opened.wait()
        while self._checkpoint_id is not None and not self._stop.wait(min(_BEAT_SECONDS, self._lease_seconds / 4)):
            try:
                state = self._service.beat(self._checkpoint_id, self._identity.rank)
                if state.state is CheckpointState.ABORTED:
                    self._fail(error_of_abort(state.abort, step=self._identity.step))
            except AttemptFenced as error:
                self._fail(error)
            except ShardkeepError as error:
                _log.debug("a beat of step %d failed: %s", self._identity.step, error)

    def _fail(self, error: Exception) -> None:
        with self._lock:
            if self._failure is not None or self._stop.is_set():
                return
            self._failure = error
        self._stop.set()
        self._arena.close()
        self._codecs.upload_speed.nothing_to_send()

    def _end(self) -> None:
        """Clean up, then say how it ended: nobody begins another save while threads of this one use the memory."""
        try:
            self._clean_up()
        except Exception as error:  # noqa: BLE001 - a thread's edge: whoever waits for the save must be told
            self._failure = self._failure or error
        if self._failure is None:
            self.pending.publish_commit()
            return
        error_told = error_of_failure(self._failure, step=self._identity.step, rank=self._identity.rank)
        at_exit = not threading.main_thread().is_alive()
        _log.log(logging.ERROR if at_exit else logging.INFO, "%s", error_told)
        self.pending.fail(error_told)

    def _clean_up(self) -> None:
        self._stop.set()
        self._opened.set()
        if self._failure is not None:
            self._failure = self._tell_service(self._failure)
        self._preparers.close()
        self._senders.close()
        self._preparers.join()
        self._senders.join()
        self._beats.join()
        self._free_memory()

    def _tell_service(self, failure: Exception) -> Exception:
        """Abort the checkpoint, so that no rank waits; gives the service's reason if it was aborted before."""
        if self._checkpoint_id is None or isinstance(failure, AttemptFenced):
            return failure
        try:
            state = self._service.abort(
                self._checkpoint_id, rank=self._identity.rank, reason=str(failure) or repr(failure)
            )
        except AttemptFenced as fenced:
            return fenced
        except ShardkeepError as error:
            _log.warning("the checkpoint of step %d could not be aborted: %s", self._identity.step, error)
            return failure
        was_aborted_before = isinstance(failure, Conflict) and failure.code in {
            ErrorCode.CHECKPOINT_ABORTED,
            ErrorCode.CHECKPOINT_NOT_OPEN,
        }
        return error_of_abort(state.abort, step=self._identity.step) if was_aborted_before else failure

    def _free_memory(self) -> None:
        for item in self._slices:
            for segment in item.segments:
                if segment.extent is not None:
                    self._arena.release(segment.extent)
                    segment.extent = None
        self._slices.clear()
        self._chunks.clear()

    def _show_at_exit(self, progress: WaitProgress) -> None:
        if not threading.main_thread().is_alive():
            progress.show(
                lambda: f"step {self._identity.step} is {self._activity}; the program ends when it is committed"
            )
