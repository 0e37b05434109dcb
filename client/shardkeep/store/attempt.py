"""One launch of a run as one rank sees it: the resume decision, inventories and saves."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable

from shardkeep.connection.request_client import RequestClient
from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import SaveFailed
from shardkeep.format.segments import SliceRecord
from shardkeep.planning.reuse import History
from shardkeep.protocol.messages import (
    AttemptInfo,
    CheckpointInfo,
    DecideResume,
    InventoryAnswer,
    PostInventory,
    ResumeDecision,
)
from shardkeep.store.checkpoint import Checkpoint
from shardkeep.store.request_watch import RequestWatch
from shardkeep.store.save_handle import SaveHandle
from shardkeep.store.save_writer import SaveWriter
from shardkeep.uploader.arena import Arena
from shardkeep.uploader.codec_choice import CodecChooser
from shardkeep.uploader.pending_save import PendingSave
from shardkeep.uploader.progress import WaitProgress
from shardkeep.uploader.save_identity import SaveIdentity
from shardkeep.uploader.settings import UploadSettings
from shardkeep.uploader.shard_upload import ShardUpload


class Attempt:
    """One rank's part in an attempt. Used by one thread at a time; the uploads it starts have their own."""

    def __init__(self, service: ServiceClient, info: AttemptInfo, *, rank: int, settings: UploadSettings) -> None:
        self.info = info
        self.rank = rank
        self._service = service
        self._settings = settings
        self._saves = 0
        self._history = History.empty()
        self._arena = Arena(settings.staging_bytes)
        self._codecs = CodecChooser(settings.codec, workers=settings.prepare_workers)
        self._in_flight: SaveHandle | None = None
        self._pending: PendingSave | None = None
        self._writer: SaveWriter | None = None

    @property
    def id(self) -> str:
        """The attempt's random id, which requests carry."""
        return self.info.id

    @property
    def world_size(self) -> int:
        """How many ranks take part."""
        return self.info.world_size

    @property
    def saves(self) -> int:
        """How many saves this rank has counted."""
        return self._saves

    @property
    def in_flight(self) -> SaveHandle | None:
        """The save begun last, until it is known to have ended and another begins."""
        return self._in_flight

    @property
    def history(self) -> History:
        """The segments of this rank's last committed save, or of the checkpoint resumed from."""
        if self._pending is not None and self._pending.done():
            committed = self._pending.committed_history()
            self._history = committed or self._history
            self._pending = None
        return self._history

    def set_history(self, checkpoint_id: str, records: Iterable[SliceRecord]) -> None:
        """Let the next save reuse the segments of a checkpoint just loaded, where they are unchanged."""
        self._history = History.of(checkpoint_id, records)

    def decide_resume(self, checkpoint_id: str | None = None, *, fresh: bool = False) -> ResumeDecision:
        """What all ranks of this attempt resume from: the first rank's answer, whatever the later ones ask.

        NoUsableCheckpoint if the run opened checkpoints and none can be used; the decision then stays open.
        """
        return self._service.decide_resume(self.id, DecideResume(checkpoint_id=checkpoint_id, fresh=fresh))

    def post_inventory(self, layout: int, message: PostInventory) -> InventoryAnswer:
        """Post what this rank holds as plain tensors; the answer says which ranks have not yet."""
        return self._service.put_inventory(self.id, layout, self.rank, message)

    def inventory(self, layout: int, message: PostInventory) -> InventoryAnswer:
        """Post what this rank holds as plain tensors and wait until every rank has.

        SaveFailed names the ranks that have not come within `UploadSettings.peer_seconds`.
        """
        answer = self.post_inventory(layout, message)
        deadline = time.monotonic() + self._settings.peer_seconds
        with WaitProgress(enabled=self.rank == 0) as progress:
            while not answer.complete:
                progress.show(functools.partial(_waiting_for, answer.waiting_for))
                started = time.monotonic()
                if started > deadline:
                    raise SaveFailed(
                        f"{_waiting_for(answer.waiting_for)} for {self._settings.peer_seconds:.0f} s: they are gone, "
                        "or do not save at the same steps as this rank"
                    )
                answer = self._service.wait_inventory(
                    self.id, layout, self.rank, wait_seconds=min(20.0, self._settings.peer_seconds)
                )
                if not answer.complete and time.monotonic() - started < 0.2:
                    time.sleep(0.2)
        return answer

    def watch_requests(self, ask: Callable[[], object]) -> RequestWatch:
        """Call `ask` from another thread whenever somebody asks the service for a save of this attempt now.

        Stop what it gives. One rank of a job is enough.
        """
        return RequestWatch(RequestClient.apart(self._service.transport), self.id, ask)

    def start_save(self, step: int, *, expected_bytes: int) -> SaveWriter:
        """Begin the next save, after the one in flight has ended however it ended.

        `expected_bytes` is what this rank is going to stage; above the staging budget staging streams. Does not wait
        for the service: refusals, AttemptFenced among them, come with the handle.
        """
        if self._writer is not None and not self._writer.is_finished:
            self._writer.abort("another save began before this one was finished")
        self.wait_in_flight()
        history = self.history
        save = self._count_save()
        identity = SaveIdentity(self.id, save, step, self.rank, self.world_size)
        upload = ShardUpload(
            self._service,
            identity,
            history=history,
            arena=self._arena,
            codecs=self._codecs,
            settings=self._settings,
            expected_bytes=expected_bytes,
        )
        self._pending = upload.pending
        self._in_flight = SaveHandle(upload.pending, self.checkpoint)
        handle = self._in_flight
        self._writer = SaveWriter(upload, publish=lambda: handle)
        return self._writer

    def skip_save(self) -> None:
        """Count a save in which this rank could take no part."""
        self._count_save()

    def wait_in_flight(self) -> None:
        """Wait until the save in flight has ended, whether it is committed or has failed."""
        if self._in_flight is not None and self._pending is not None:
            self._pending.wait_until_done(show_progress=self.rank == 0)

    def close(self) -> None:
        """Wait for the save in flight and let go of the staging memory; a save still being staged is aborted."""
        if self._writer is not None and not self._writer.is_finished:
            self._writer.abort("the attempt was closed before this save was finished")
        self.wait_in_flight()
        self._arena.release_memory()

    def _count_save(self) -> int:
        self._saves += 1
        return self._saves - 1

    def checkpoint(self, info: CheckpointInfo) -> Checkpoint:
        """What the resume decision or a save's outcome names, for reading."""
        return Checkpoint(self._service, info, shows_progress=self.rank == 0)


def _waiting_for(ranks: list[int]) -> str:
    return f"waiting for the inventories of ranks {_short(ranks)}"


def _short(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
