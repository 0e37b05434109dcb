from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardkeep_service.blob_store import patient_probe
from shardkeep_service.blob_store.errors import BlobStoreUnavailable
from shardkeep_service.blob_store.patient_probe import PatientProbe
from shardkeep_service.blob_store.presigner import StoreAbilities
from tests.waiting import wait_until

ABLE = StoreAbilities(presigned_checksum_enforced=True)


def test_all_who_ask_at_once_share_one_answer() -> None:
    asked = []

    def find() -> StoreAbilities:
        asked.append(1)
        time.sleep(0.1)
        return ABLE

    probe = PatientProbe(find)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: probe(), range(8))) == [ABLE] * 8
    assert len(asked) == 1


def test_after_a_failure_nobody_waits_for_the_store_for_a_while() -> None:
    now, asked = [100.0], []

    def find() -> StoreAbilities:
        asked.append(1)
        if len(asked) == 1:
            raise BlobStoreUnavailable("no answer")
        return ABLE

    probe = PatientProbe(find, clock=lambda: now[0])
    for _ in range(5):
        with pytest.raises(BlobStoreUnavailable):
            probe()
    assert len(asked) == 1
    now[0] += 11
    assert probe() is ABLE


def test_others_wait_only_so_long_for_a_probe_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient_probe, "_WAIT_SECONDS", 0.05)
    release = threading.Event()

    def find() -> StoreAbilities:
        release.wait(120)
        return ABLE

    probe = PatientProbe(find)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(probe)
        wait_until(probe._asking.locked)
        with pytest.raises(BlobStoreUnavailable, match="yet"):
            probe()
        release.set()
        assert first.result(60) is ABLE
    assert probe() is ABLE
