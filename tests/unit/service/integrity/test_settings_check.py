"""Settings that do not go together are told, with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from shardkeep_service.blob_store.findings import Level
from shardkeep_service.integrity.settings_check import examine_settings
from shardkeep_service.settings import Settings


def found(stored_bytes: int = 0, **settings: Any) -> dict[str, Level]:
    return {one.name: one.level for one in examine_settings(Settings(**settings), stored_bytes=stored_bytes)}


def test_the_defaults_are_fine() -> None:
    assert found() == {"settings": Level.OK}


@pytest.mark.parametrize(
    ("settings", "name", "level"),
    [
        ({"upload_budget_bytes": 100 << 20}, "upload_budget", Level.FAIL),
        ({"upload_budget_bytes": 300 << 20}, "upload_budget", Level.WARN),
        ({"lease_seconds": 20}, "lease", Level.FAIL),
        ({"lease_seconds": 60}, "lease", Level.WARN),
        ({"open_limit_seconds": 300}, "open_limit", Level.WARN),
        ({"validation_lease_seconds": 2}, "validation_lease", Level.WARN),
        ({"collection_grace_seconds": 5}, "collection_grace", Level.WARN),
        ({"deleted_keep_seconds": 0}, "deleted_keep", Level.WARN),
        ({"scrub_bytes_per_second": 0}, "scrub_rate", Level.WARN),
        ({"metrics_public": True}, "metrics", Level.WARN),
        ({"ui_plain_http": True}, "ui_plain_http", Level.WARN),
        ({"fault": "exit:before:1"}, "fault", Level.FAIL),
    ],
)
def test_what_is_unwise_is_told(settings: dict[str, Any], name: str, level: Level) -> None:
    assert found(**settings) == {name: level}


def test_a_scrub_that_cannot_keep_up_is_told() -> None:
    month = 30 * 86_400
    assert found(stored_bytes=(64 << 20) * month - 1) == {"settings": Level.OK}
    assert found(stored_bytes=(64 << 20) * (month + 1)) == {"scrub_rate": Level.WARN}
