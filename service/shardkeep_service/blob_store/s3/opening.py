"""The parts of an S3 store, put together from its settings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from shardkeep_service.blob_store.errors import BlobStoreRefused
from shardkeep_service.blob_store.findings import Level
from shardkeep_service.blob_store.presigner import StoreAbilities
from shardkeep_service.blob_store.s3.connection import S3Connection
from shardkeep_service.blob_store.s3.presigner import S3Presigner
from shardkeep_service.blob_store.s3.probe import ProbeReport, probe
from shardkeep_service.blob_store.s3.settings import S3Settings
from shardkeep_service.blob_store.s3.store import S3BlobStore
from shardkeep_service.blob_store.s3.store_clock import StoreClock

log = structlog.get_logger("shardkeep.blob_store")


@dataclass(frozen=True, slots=True)
class S3Parts:
    """What a service needs of a bucket."""

    store: S3BlobStore
    presigner: S3Presigner
    abilities: ProbedAbilities
    connection: S3Connection


def open_s3(settings: S3Settings, *, storage_threads: int, clock: StoreClock | None = None) -> S3Parts:
    """Makes the client and what stands on it; connects to nothing yet."""
    # Readers hold a connection while their clients take the bytes, beside those that the threads use.
    connection = S3Connection(settings, connections=2 * storage_threads, clock=clock)
    abilities = ProbedAbilities(lambda: probe(connection))
    presigner = S3Presigner(
        settings,
        endpoint_url=settings.public_endpoint_url or connection.endpoint_url,
        credentials=connection.credentials,
        clock=connection.clock,
    )
    return S3Parts(S3BlobStore(connection, abilities), presigner, abilities, connection)


class ProbedAbilities:
    """The abilities of a store, probed at the first call and remembered. Thread-safe: the others wait for the first."""

    def __init__(self, probe_store: Callable[[], ProbeReport]) -> None:
        self._probe_store = probe_store
        self._lock = threading.Lock()
        self._known: StoreAbilities | None = None

    def __call__(self) -> StoreAbilities:
        """`BlobStoreUnavailable` while the store does not answer, `BlobStoreRefused` when it cannot be used as it is.

        Either way the next call tries again.
        """
        if self._known is not None:
            return self._known
        with self._lock:
            if self._known is None:
                report = self._probe_store()
                _log(report)
                if report.abilities is None:
                    last = report.findings[-1]
                    raise BlobStoreRefused(f"the object store cannot be used: {last.detail}; {last.advice}")
                self._known = report.abilities
            return self._known


def _log(report: ProbeReport) -> None:
    for finding in report.findings:
        if finding.level is Level.OK:
            log.info("store_probed", ability=finding.name, found=finding.detail)
        else:
            log.warning("store_probed", ability=finding.name, found=finding.detail, advice=finding.advice)
