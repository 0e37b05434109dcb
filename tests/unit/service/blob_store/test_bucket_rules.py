"""Rules of a bucket that would keep, lock or delete our objects are named."""

from __future__ import annotations

from typing import Any

import pytest

from shardkeep_service.blob_store.findings import Level
from shardkeep_service.blob_store.s3.bucket_rules import judge_lifecycle, judge_object_lock, judge_versioning


def rule(**changed: Any) -> dict[str, Any]:
    return {"ID": "old-things", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 30}, **changed}


@pytest.mark.parametrize(
    ("answer", "level"),
    [
        ({}, Level.OK),
        ({"Status": "Suspended"}, Level.OK),
        ({"Status": "Enabled"}, Level.WARN),
        ("lacks s3:GetBucketVersioning", Level.WARN),
    ],
)
def test_versioning_is_warned_of(answer: Any, level: Level) -> None:
    found = judge_versioning(answer)
    assert found.level is level
    assert bool(found.advice) is (level is not Level.OK)


def test_object_lock_is_warned_of_with_its_length() -> None:
    locked = {"ObjectLockConfiguration": {"Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 90}}}}
    assert judge_object_lock("no such configuration").level is Level.OK
    assert judge_object_lock({"ObjectLockConfiguration": {"ObjectLockEnabled": "Enabled"}}).level is Level.OK
    assert judge_object_lock(locked).level is Level.WARN
    assert "90 days (COMPLIANCE)" in judge_object_lock(locked).detail


@pytest.mark.parametrize(
    ("rules", "harmful"),
    [
        ([rule()], True),
        ([rule(Filter={"Prefix": "kept/"})], True),
        ([rule(Filter={"Prefix": "kept/prj_1/"})], True),
        ([rule(Filter={"And": {"Prefix": "ke", "Tags": []}})], True),
        ([rule(Prefix="kept/", Filter={})], True),
        ([rule(Expiration={"Date": "2027-01-01"})], True),
        ([rule(Filter={"Prefix": "logs/"})], False),
        ([rule(Filter={"Tag": {"Key": "temporary", "Value": "yes"}})], False),
        ([rule(Filter={"And": {"Prefix": "kept/", "Tags": [{"Key": "temporary", "Value": "yes"}]}})], False),
        ([rule(Status="Disabled")], False),
        ([rule(Expiration={"ExpiredObjectDeleteMarker": True})], False),
        ([{"ID": "uploads", "Status": "Enabled", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}], False),
        ([], False),
    ],
)
def test_a_rule_that_deletes_our_objects_by_age_is_a_failure(rules: list[dict[str, Any]], harmful: bool) -> None:
    found = judge_lifecycle({"Rules": rules}, "kept/")
    assert found.level is (Level.FAIL if harmful else Level.OK)
    if harmful:
        assert "old-things" in found.detail


def test_a_bucket_without_a_lifecycle_is_fine() -> None:
    assert judge_lifecycle("no such configuration", "").level is Level.OK
