"""Metrics, in Prometheus' conventions: base units, totals for counters, bounded words (route templates) as labels.

No label ever holds an id, a digest, a name that users choose or anything else without a bound: such facts are in the
log, under the request id. `docs/monitoring.md` explains each family; a test keeps it complete.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SECONDS_OF_REQUESTS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""Up to 300 s: a chunk of 256 MiB over a slow line takes minutes, and that is no error."""
STREAMED: Final = "streamed"
DIRECT: Final = "direct"
SECONDS_OF_SAVES: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
BYTES_OF_BODIES: Final = tuple(1 << power for power in range(12, 29, 2))
"""4 KiB to 256 MiB."""


class Metrics:
    """The families of one process, in a registry of their own: several applications in one process share nothing.

    Thread-safe. An attribute is a family; `labels(...)` gives its series. Add a family here, with its line in
    `docs/monitoring.md`.
    """

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry(auto_describe=True)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        Info("shardkeep_build", "The version that runs.", registry=registry).info({"version": version("shardkeep")})
        self._requests(registry)
        self._uploads(registry)
        self._checkpoints(registry)
        self._store(registry)
        self._background(registry)

    def _requests(self, registry: CollectorRegistry) -> None:
        by_route = ["method", "route"]
        self.requests = Counter(
            "shardkeep_http_requests_total", "Requests answered.", [*by_route, "status"], registry=registry
        )
        self.request_seconds = Histogram(
            "shardkeep_http_request_duration_seconds",
            "Time from a request's headers to the end of its answer.",
            by_route,
            buckets=SECONDS_OF_REQUESTS,
            registry=registry,
        )
        self.requests_in_progress = Gauge(
            "shardkeep_http_requests_in_progress", "Requests being served, long polls too.", registry=registry
        )
        self.request_bytes = Counter(
            "shardkeep_http_request_body_bytes_total", "Bytes of request bodies.", by_route, registry=registry
        )
        self.response_bytes = Counter(
            "shardkeep_http_response_body_bytes_total", "Bytes of answers' bodies.", by_route, registry=registry
        )
        self.refusals = Counter(
            "shardkeep_refusals_total", "Requests answered with a problem, by its code.", ["code"], registry=registry
        )

    def _uploads(self, registry: CollectorRegistry) -> None:
        self.negotiated_chunks = Counter(
            "shardkeep_negotiated_chunks_total",
            "Chunks offered, by the answer: `present`, or `upload` to be sent.",
            ["answer"],
            registry=registry,
        )
        self.upload_seconds = Histogram(
            "shardkeep_upload_duration_seconds",
            "Time to take one chunk, from its headers until it is stored. `way` is `streamed` or `direct`.",
            ["way"],
            buckets=SECONDS_OF_REQUESTS,
            registry=registry,
        )
        self.upload_size = Histogram(
            "shardkeep_upload_size_bytes",
            "Size of stored chunks; its sum is the bytes uploaded.",
            ["way"],
            buckets=BYTES_OF_BODIES,
            registry=registry,
        )
        self.upload_budget = Gauge(
            "shardkeep_upload_budget_bytes", "Bytes of bodies that may be held at one time.", registry=registry
        )
        self.upload_budget_used = Gauge(
            "shardkeep_upload_budget_used_bytes", "Bytes of bodies being held now.", registry=registry
        )

    def _checkpoints(self, registry: CollectorRegistry) -> None:
        self.checkpoints = Counter(
            "shardkeep_checkpoints_total",
            "Saves that ended, by `outcome`: `committed`, or the error code of their abort.",
            ["outcome"],
            registry=registry,
        )
        self.validation_seconds = Histogram(
            "shardkeep_validation_duration_seconds",
            "Time from the last manifest to the end of validation.",
            ["outcome"],
            buckets=SECONDS_OF_SAVES,
            registry=registry,
        )
        self.commit_seconds = Histogram(
            "shardkeep_commit_duration_seconds",
            "Time from a save's first open to its commit.",
            buckets=SECONDS_OF_SAVES,
            registry=registry,
        )

    def _store(self, registry: CollectorRegistry) -> None:
        self.store_seconds = Histogram(
            "shardkeep_store_operation_duration_seconds",
            "Time of one operation on the object store, its retries included. `result` is `ok` or a kind of error.",
            ["operation", "result"],
            buckets=SECONDS_OF_REQUESTS,
            registry=registry,
        )
        self.store_bytes = Counter(
            "shardkeep_store_operation_bytes_total",
            "Bytes moved to and from the store.",
            ["operation"],
            registry=registry,
        )
        self.store_retries = Counter(
            "shardkeep_store_retries_total",
            "Operations on the object store tried again.",
            ["operation"],
            registry=registry,
        )

        self.database_connections = Gauge(
            "shardkeep_database_connections", "Connections in use by this process.", registry=registry
        )

    def _background(self, registry: CollectorRegistry) -> None:
        self.task_seconds = Histogram(
            "shardkeep_task_duration_seconds",
            "Time of one turn of a background task.",
            ["task", "result"],
            buckets=SECONDS_OF_SAVES,
            registry=registry,
        )
        self.task_success = Gauge(
            "shardkeep_task_last_success_timestamp_seconds", "When a task last ended well.", ["task"], registry=registry
        )
        self.outbox_lag = Gauge(
            "shardkeep_outbox_lag_seconds",
            "Age of the oldest commit whose record is not written yet; 0 when all are.",
            registry=registry,
        )
        self.collection_lag = Gauge(
            "shardkeep_collection_lag_seconds",
            "Time since collection last went through a whole pass.",
            registry=registry,
        )
        self.retention_deleted = Counter(
            "shardkeep_retention_deleted_checkpoints_total", "Checkpoints that policies deleted.", registry=registry
        )
        self.purged_checkpoints = Counter(
            "shardkeep_collection_purged_checkpoints_total", "Deleted checkpoints purged.", registry=registry
        )
        self.condemned_chunks = Counter(
            "shardkeep_collection_condemned_chunks_total",
            "Chunks found to be needed by nobody, to be removed after a grace.",
            registry=registry,
        )
        self.collected_objects = Counter(
            "shardkeep_collection_removed_objects_total",
            "Objects removed. `kind` is `chunk`, `manifest`, `index` or `stray`, which no row named.",
            ["kind"],
            registry=registry,
        )
        self.collected_bytes = Counter(
            "shardkeep_collection_removed_bytes_total", "Bytes of chunks and strays removed.", registry=registry
        )
        self.collection_candidates = Gauge(
            "shardkeep_collection_candidates",
            "What waits to be removed at the end of a pass: deleted checkpoints, condemned chunks, strays seen once.",
            ["kind"],
            registry=registry,
        )
        self.collection_stopped = Gauge(
            "shardkeep_collection_stopped",
            "1 while nothing is collected because the bucket is newer than the database, or another catalogue's.",
            registry=registry,
        )
        self.damaged_objects = Counter(
            "shardkeep_damaged_objects_total",
            "Stored objects found damaged or lost, by what they are; a damaged index is built again.",
            ["kind"],
            registry=registry,
        )
        self.open_findings = Gauge(
            "shardkeep_open_findings", "Damaged or lost objects that are neither healed nor purged.", registry=registry
        )
        self.scrubbed_bytes = Counter(
            "shardkeep_scrubbed_bytes_total", "Bytes that the scrub read and compared.", registry=registry
        )
        self.scrub_coverage = Gauge(
            "shardkeep_scrub_coverage_ratio",
            "Part of the stored bytes whose digest was compared within the scrub's interval.",
            registry=registry,
        )
        self.declared_bytes = Gauge(
            "shardkeep_declared_bytes",
            "Stored bytes whose digest the service has not compared yet: only the run that stored them reuses them.",
            registry=registry,
        )
        self.scrub_lag = Gauge(
            "shardkeep_scrub_lag_seconds",
            "Time since the bytes verified longest ago were verified.",
            registry=registry,
        )

    def text(self) -> bytes:
        """What Prometheus scrapes."""
        return generate_latest(self.registry)
