"""Rules of the bucket that would keep deleted objects, keep us from deleting, or delete what we need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shardkeep_service.blob_store.errors import BlobStoreError, BlobStoreUnavailable
from shardkeep_service.blob_store.findings import Finding, Level
from shardkeep_service.blob_store.s3.connection import S3Connection


def examine_bucket_rules(connection: S3Connection, findings: list[Finding]) -> bool:
    """Adds a finding each for versioning, object lock and lifecycle; gives whether deleted objects stay as versions."""
    client = connection.client
    versioning = _asked(connection, "GetBucketVersioning", client.get_bucket_versioning)
    lock = _asked(connection, "GetBucketObjectLockConfiguration", client.get_object_lock_configuration)
    lifecycle = _asked(connection, "GetLifecycleConfiguration", client.get_bucket_lifecycle_configuration)
    findings.append(judge_versioning(versioning))
    findings.append(judge_object_lock(lock))
    findings.append(judge_lifecycle(lifecycle, connection.settings.prefix))
    return isinstance(versioning, Mapping) and versioning.get("Status") in ("Enabled", "Suspended")


def judge_versioning(answer: Mapping[str, Any] | str) -> Finding:
    """The answer of GetBucketVersioning, or why there is none."""
    if isinstance(answer, str):
        return Finding(
            "versioning", Level.WARN, f"not known: {answer}", "allow s3:GetBucketVersioning to have it looked at"
        )
    if answer.get("Status") == "Enabled":
        advice = "add a lifecycle rule that expires noncurrent versions, or deletes will free no space"
        return Finding("versioning", Level.WARN, "the bucket keeps every deleted object as an old version", advice)
    return Finding("versioning", Level.OK, "deletes free space")


def judge_object_lock(answer: Mapping[str, Any] | str) -> Finding:
    """The answer of GetObjectLockConfiguration, or why there is none (no configuration is an error in S3)."""
    configuration = {} if isinstance(answer, str) else answer.get("ObjectLockConfiguration", {})
    retention = configuration.get("Rule", {}).get("DefaultRetention")
    if retention:
        lasting = f"{retention.get('Days') or retention.get('Years')} {'days' if retention.get('Days') else 'years'}"
        detail = f"the bucket locks every object for {lasting} ({retention.get('Mode')})"
        return Finding(
            "object_lock", Level.WARN, detail, "collection can free nothing before; keep checkpoints elsewhere"
        )
    return Finding("object_lock", Level.OK, "objects are not locked")


def judge_lifecycle(answer: Mapping[str, Any] | str, prefix: str) -> Finding:
    """The answer of GetBucketLifecycleConfiguration, or why there is none (no configuration is an error in S3)."""
    rules = [] if isinstance(answer, str) else answer.get("Rules", [])
    harmful = [rule for rule in rules if _deletes_ours(rule, prefix)]
    if harmful:
        names = ", ".join(str(rule.get("ID", "without a name")) for rule in harmful)
        advice = "remove them or keep them off our prefix: age does not say whether a checkpoint needs an object"
        return Finding("lifecycle", Level.FAIL, f"rules of the bucket delete objects of ours by age: {names}", advice)
    return Finding("lifecycle", Level.OK, "no rule of the bucket deletes objects of ours")


def _deletes_ours(rule: Mapping[str, Any], prefix: str) -> bool:
    if rule.get("Status") != "Enabled":
        return False
    expiration = rule.get("Expiration", {})
    if not ("Days" in expiration or "Date" in expiration):
        return False
    scope = rule.get("Filter", {})
    if scope.get("Tag") or scope.get("And", {}).get("Tags"):  # our objects have no tags
        return False
    of = str(scope.get("Prefix") or scope.get("And", {}).get("Prefix") or rule.get("Prefix") or "")
    return of.startswith(prefix) or prefix.startswith(of)


def _asked(connection: S3Connection, action: str, method: Callable[..., Any]) -> Mapping[str, Any] | str:
    """The answer, or why there is none: few stores know all of these, and few credentials may ask."""
    try:
        answer: Mapping[str, Any] = connection.call(action, method)
    except BlobStoreUnavailable as error:
        if error.throttled:
            raise
        return str(error)
    except BlobStoreError as error:
        return str(error)
    return answer
