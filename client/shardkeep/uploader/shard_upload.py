"""One rank's save, from the first staged byte to the commit.

The caller's thread stages; everything else happens in threads that the interpreter waits for at exit:
prepare workers (fingerprint, skip, encode, hash), send workers (offer, send), one that beats, and one that opens the
checkpoint, hands in the manifest, waits for the commit and cleans up. Whatever fails anywhere ends the save once. Here
the parts are put together; what each does is in `staging`, `preparation`, `sending`, `committing`, `healing`, `beats`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import SaveConflict, SaveFailed
from shardkeep.format.dtypes import dtype_named
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind, ValueRecord
from shardkeep.planning.packing import packing_group
from shardkeep.planning.reuse import History
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointState, OpenCheckpoint, StateAnswer
from shardkeep.uploader.arena import Arena
from shardkeep.uploader.beats import Beats
from shardkeep.uploader.codec_choice import CodecChooser
from shardkeep.uploader.committing import Committing
from shardkeep.uploader.failures import error_of_abort, error_of_failure
from shardkeep.uploader.giving_up import give_up
from shardkeep.uploader.handover import Handover
from shardkeep.uploader.healing import send_again
from shardkeep.uploader.held_shard import HeldShard
from shardkeep.uploader.pending_save import PendingSave
from shardkeep.uploader.preparation import Preparation
from shardkeep.uploader.progress import WaitProgress
from shardkeep.uploader.save_identity import SaveIdentity
from shardkeep.uploader.sending import Sending
from shardkeep.uploader.settings import UploadSettings
from shardkeep.uploader.staged import StagedChunk, StagedSegment, StagedSlice
from shardkeep.uploader.staging import Fill, Staging
from shardkeep.uploader.work_queue import Outstanding, WorkQueue

_log = logging.getLogger("shardkeep")
_LOOK_SECONDS: Final = 0.5
_HEAD_START_SECONDS: Final = 1.0
"""Of staging, for which training waits, before other threads take cores and memory bandwidth from it: half the wait on
two cores. A large shard is staged for longer, and then its upload must not wait for all of it."""


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
        budget_bytes = settings.staging_bytes
        self._shard = HeldShard(arena, keeps=budget_bytes is None or expected_bytes <= budget_bytes)
        self._staging = Staging(
            self._shard, arena, budget_bytes=budget_bytes, on_batch=self._prepare_later, relieve=self._relieve
        )
        self._owner = threading.current_thread()
        self._head_start_until = time.monotonic() + _HEAD_START_SECONDS
        self._activity = "being staged"
        self._handover: Handover | None = None
        self._staged = threading.Event()
        self._opened = threading.Event()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._checkpoint_id: str | None = None
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
            keep_bytes=lambda: self._shard.keeps,
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
        self._beats = Beats(self._service, self._identity, stop=self._stop, on_failure=self._fail)
        threading.Thread(target=self._run, name="shardkeep-save", daemon=False).start()

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
        try:
            self._staging.stage(item, raw_bytes, fill)
        except BaseException as error:
            self.abort(f"staging {name} failed: {error!r}")
            raise

    def finish(
        self, values: Sequence[ValueRecord], metrics: Mapping[str, float], environment: Mapping[str, Any]
    ) -> None:
        """All is staged."""
        self._staging.hand_over_batch()
        self._handover = Handover(tuple(values), dict(metrics), dict(environment))
        self._preparation.end_after(self._staging.batches)
        self._activity = "being uploaded"
        self._staged.set()

    def abort(self, reason: str) -> None:
        """Give up."""
        step, rank = self._identity.step, self._identity.rank
        message = f"step {step} was not saved: rank {rank} gave up: {reason}"
        self._fail(SaveFailed(message, step=step, code=ErrorCode.ABORTED_BY_CLIENT, rank=rank))
        self._staged.set()

    def _prepare_later(self, number: int, batch: Sequence[StagedSegment]) -> None:
        self._outstanding.begin()
        self._preparers.put(lambda: self._prepare(number, batch))

    # --- prepare and send workers ------------------------------------------------------------------------------------

    def _prepare(self, number: int, batch: Sequence[StagedSegment]) -> None:
        self._opened.wait()
        if self._shard.keeps:
            self._staged.wait(max(self._head_start_until - time.monotonic(), 0.0))
        if self._stop.is_set():
            return
        self._preparation.prepare(number, batch)
        self._relieve()

    def _send(self, chunk: StagedChunk) -> None:
        self._shard.chunk_begun(chunk)
        self._sending.send(chunk)

    def _stored(self, chunk: StagedChunk) -> None:
        self._shard.chunk_stored(chunk)
        self._outstanding.end()
        self._relieve()

    def _relieve(self) -> None:
        """Send begun chunks early if staging waits for memory that nothing under way will free."""
        if self._arena.is_waited_for and self._shard.is_idle:
            self._preparation.flush()

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
            self._beats.begin(answer.checkpoint_id, answer.lease_seconds)
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
            self.pending.prepare_commit(info, History.of(self._checkpoint_id, self._shard.records()))

    def _note_state(self, state: StateAnswer) -> None:
        if state.state is CheckpointState.VALIDATING:
            self._activity = "being validated"
        elif state.waiting_for:
            shown = ", ".join(map(str, state.waiting_for[:8])) + (" ..." if len(state.waiting_for) > 8 else "")
            self._activity = f"waiting for ranks {shown}"

    def _manifest(self) -> bytes:
        assert self._handover is not None
        return self._handover.manifest(self._identity, self._shard.records())

    def _heal(self, missing: Sequence[str]) -> bytes:
        """Send chunks that the service lost again; the manifest that names what is stored now."""
        send_again(missing, self._shard, self._identity, offer=self._offer_again, repack=self._preparation.repack)
        while not self._stop.is_set() and not self._outstanding.wait(_LOOK_SECONDS):
            continue
        return self._manifest()

    def _offer_again(self, chunk: StagedChunk) -> None:
        self._outstanding.begin()
        self._sending.offer(chunk)

    # --- ends --------------------------------------------------------------------------------------------------------

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
            self._failure = give_up(self._service, self._checkpoint_id, self._identity, self._failure)
        self._preparers.close()
        self._senders.close()
        self._preparers.join()
        self._senders.join()
        self._beats.join()
        self._shard.free()

    def _show_at_exit(self, progress: WaitProgress) -> None:
        if not threading.main_thread().is_alive():
            progress.show(
                lambda: f"step {self._identity.step} is {self._activity}; the program ends when it is committed"
            )
