"""Settings that are each allowed and together unwise. Pure."""

from __future__ import annotations

from typing import Final

from shardkeep_service.blob_store.findings import Finding, Level
from shardkeep_service.settings import Settings

_PREFIX: Final = "SHARDKEEP_SERVICE_"
_BEATS_PER_LEASE: Final = 3
_SHORT_GRACE_SECONDS: Final = 3_600
_SHORT_VALIDATION_SECONDS: Final = 10
_DAY: Final = 86_400


def examine_settings(settings: Settings, *, stored_bytes: int) -> list[Finding]:
    """What an operator may not have meant; one finding that all is well where there is nothing."""
    found = [
        *_uploads(settings),
        *_leases(settings),
        *_graces(settings),
        *_scrub(settings, stored_bytes),
        *_openness(settings),
    ]
    return found or [Finding("settings", Level.OK, "budgets, leases and grace times go together")]


def _uploads(settings: Settings) -> list[Finding]:
    budget, chunk = settings.upload_budget_bytes, settings.max_chunk_bytes
    detail = f"{_PREFIX}UPLOAD_BUDGET_BYTES is {budget}, and one chunk may have {chunk}"
    if budget < chunk:
        return [Finding("upload_budget", Level.FAIL, detail, "the largest chunks are never taken: raise the budget")]
    if budget < 2 * chunk:
        return [Finding("upload_budget", Level.WARN, detail, "large chunks are taken one by one: raise the budget")]
    return []


def _leases(settings: Settings) -> list[Finding]:
    lease, beat = settings.lease_seconds, settings.beat_seconds
    detail = f"a session lives {lease:g} s without a request, and clients beat every {beat:g} s"
    found = []
    if lease <= beat:
        advice = f"every save is aborted: give {_PREFIX}LEASE_SECONDS at least three beats"
        found.append(Finding("lease", Level.FAIL, detail, advice))
    elif lease < _BEATS_PER_LEASE * beat:
        advice = f"one lost beat may abort a save: give {_PREFIX}LEASE_SECONDS at least three beats"
        found.append(Finding("lease", Level.WARN, detail, advice))
    if settings.open_limit_seconds <= settings.open_deadline_seconds:
        detail = (
            f"a checkpoint may stay open for {settings.open_limit_seconds:g} s, and ranks may come for"
            f" {settings.open_deadline_seconds:g} s"
        )
        found.append(Finding("open_limit", Level.WARN, detail, f"raise {_PREFIX}OPEN_LIMIT_SECONDS to hours"))
    if settings.validation_lease_seconds < _SHORT_VALIDATION_SECONDS:
        detail = f"a validation is taken over after {settings.validation_lease_seconds:g} s of silence"
        advice = "a slow store makes replicas take each other's work: give it a minute"
        found.append(Finding("validation_lease", Level.WARN, detail, advice))
    return found


def _graces(settings: Settings) -> list[Finding]:
    found = []
    if settings.collection_grace_seconds < _SHORT_GRACE_SECONDS:
        detail = f"collection waits {settings.collection_grace_seconds:g} s before it removes what nothing names"
        advice = f"there is little time to notice a mistake: raise {_PREFIX}COLLECTION_GRACE_SECONDS to a day"
        found.append(Finding("collection_grace", Level.WARN, detail, advice))
    if settings.deleted_keep_seconds < _SHORT_GRACE_SECONDS:
        detail = f"what is deleted can be restored for {settings.deleted_keep_seconds:g} s"
        found.append(Finding("deleted_keep", Level.WARN, detail, f"raise {_PREFIX}DELETED_KEEP_SECONDS to days"))
    return found


def _scrub(settings: Settings, stored_bytes: int) -> list[Finding]:
    rate, interval = settings.scrub_bytes_per_second, settings.scrub_interval_seconds
    if rate == 0:
        advice = "run `shardkeep-service scrub` from time to time, or set a rate"
        return [Finding("scrub_rate", Level.WARN, "the worker reads nothing again", advice)]
    needed = stored_bytes / rate
    if needed > interval:
        detail = f"reading all takes {needed / _DAY:.1f} days, and everything is due after {interval / _DAY:.1f}"
        advice = f"raise {_PREFIX}SCRUB_BYTES_PER_SECOND or {_PREFIX}SCRUB_INTERVAL_SECONDS"
        return [Finding("scrub_rate", Level.WARN, detail, advice)]
    return []


def _openness(settings: Settings) -> list[Finding]:
    found = []
    if settings.metrics_public:
        advice = f"unset {_PREFIX}METRICS_PUBLIC and give Prometheus a token of scope `metrics`"
        found.append(Finding("metrics", Level.WARN, "anyone who reaches the port reads /metrics", advice))
    if settings.ui_enabled and settings.ui_plain_http:
        detail = "browsers may sign in over plain HTTP, where everyone on the way reads token and cookie"
        found.append(Finding("ui_plain_http", Level.WARN, detail, f"unset {_PREFIX}UI_PLAIN_HTTP and end TLS in front"))
    if settings.fault is not None:
        found.append(Finding("fault", Level.FAIL, "a test fault is set", f"unset {_PREFIX}FAULT"))
    return found
