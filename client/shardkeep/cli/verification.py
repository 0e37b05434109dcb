"""Reading every chunk of a checkpoint again and checking it against every rank's manifest."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat

from shardkeep.cli.chunk_checks import ChunkCheck, Finding, check_chunk, lost_chunk, plan_chunk_checks
from shardkeep.cli.output import Advance
from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import (
    FormatError,
    IntegrityError,
    NotFound,
    VersionTooNew,
)
from shardkeep.format.manifest import decode_manifest
from shardkeep.format.segments import SliceRecord
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointInfo
from shardkeep.protocol.versions import NEGOTIATE_LIMIT
from shardkeep.store.chunk_targets import ChunkTargets

READERS = 4
"""Chunks in memory at a time."""
_TARGETS_AT_A_TIME = 64
"""Few enough that the last is read before its target expires."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Stored bytes that are not what was saved. `tensor` is None where no saved byte is hit or the manifest is."""

    rank: int
    detail: str
    chunk: str | None = None
    tensor: str | None = None
    regions: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    """Offsets and sizes of each box."""


@dataclass(slots=True)
class Verification:
    """What was read and what was found."""

    ranks: int = 0
    chunks: int = 0
    stored_bytes: int = 0
    segments: int = 0
    damage: list[Damage] = field(default_factory=list)

    def damaged_chunks(self) -> list[str]:
        """The digests of damaged chunks, once each."""
        return list(dict.fromkeys(item.chunk for item in self.damage if item.chunk is not None))


class Verifier:
    """Checks one checkpoint. A chunk that several ranks share is read once for all that need the same of it."""

    def __init__(self, service: ServiceClient, info: CheckpointInfo, advance: Advance) -> None:
        self._service = service
        self._info = info
        self._advance = advance
        self._seen: set[bytes] = set()
        self._counted: set[str] = set()
        self._stop = threading.Event()
        self.result = Verification()

    def run(self) -> Verification:
        """Read and check everything; damage is in the result, other failures are raised."""
        with ThreadPoolExecutor(READERS, thread_name_prefix="shardkeep-verify") as pool:
            try:
                for rank in range(self._info.world_size):
                    self._verify_rank(rank, pool)
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return self.result

    def _verify_rank(self, rank: int, pool: ThreadPoolExecutor) -> None:
        self.result.ranks += 1
        slices = self._slices(rank)
        checks = [check for check in plan_chunk_checks(slices) if self._is_new(check)]
        for start in range(0, len(checks), _TARGETS_AT_A_TIME):
            batch = checks[start : start + _TARGETS_AT_A_TIME]
            targets = ChunkTargets(self._service, self._info.id, (check.chunk.digest for check in batch))
            for findings in pool.map(self._check, batch, repeat(targets)):
                self.result.damage += [_damage(rank, finding) for finding in findings]
            self._count(batch)

    def _slices(self, rank: int) -> Sequence[SliceRecord]:
        try:
            return list(decode_manifest(self._service.manifest(self._info.id, rank)).slices())
        except VersionTooNew:
            raise
        except (FormatError, NotFound) as exc:
            _raise_unless_lost(exc)
            self.result.damage.append(Damage(rank, f"the manifest of rank {rank} cannot be read: {exc}"))
            return ()

    def _is_new(self, check: ChunkCheck) -> bool:
        identity = check.identity()
        if identity in self._seen:
            return False
        self._seen.add(identity)
        return True

    def _check(self, check: ChunkCheck, targets: ChunkTargets) -> list[Finding]:
        if self._stop.is_set():
            return []
        data = memoryview(bytearray(check.chunk.size_bytes))
        try:
            targets.read_into(check.chunk, 0, [data])
        except (NotFound, IntegrityError) as exc:
            _raise_unless_lost(exc)
            return lost_chunk(check, str(exc))
        finally:
            self._advance(check.chunk.size_bytes)
        return check_chunk(check, data)

    def _count(self, batch: Sequence[ChunkCheck]) -> None:
        for check in batch:
            self.result.segments += len(check.segments)
            if check.chunk.digest not in self._counted:
                self._counted.add(check.chunk.digest)
                self.result.chunks += 1
                self.result.stored_bytes += check.chunk.size_bytes


def report_damage(service: ServiceClient, checkpoint_id: str, digests: Sequence[str]) -> None:
    """Tell the service which chunks to read again itself."""
    for start in range(0, len(digests), NEGOTIATE_LIMIT):
        service.report_damage(checkpoint_id, digests[start : start + NEGOTIATE_LIMIT])


def _raise_unless_lost(error: FormatError | NotFound) -> None:
    """Raise again what says that the checkpoint as a whole cannot be read, by now or by this version."""
    if isinstance(error, NotFound) and error.code not in {ErrorCode.UNKNOWN_CHUNK, ErrorCode.UNKNOWN_MANIFEST}:
        raise error


def _damage(rank: int, finding: Finding) -> Damage:
    if finding.segment is None:
        return Damage(rank, finding.detail, finding.chunk.digest)
    regions = tuple((region.offsets, region.sizes) for region in finding.segment.regions())
    return Damage(rank, finding.detail, finding.chunk.digest, finding.segment.record.name, regions)
