"""How the end of a save is waited for."""

from __future__ import annotations

import threading

import pytest

from shardkeep.errors import SaveFailed
from shardkeep.uploader.pending_save import PendingSave


def pending() -> PendingSave:
    return PendingSave(7, lambda: "being uploaded")


def test_waiting_gives_up_after_its_timeout_and_the_save_goes_on() -> None:
    save = pending()
    with pytest.raises(TimeoutError, match="step 7 is still being uploaded"):
        save.wait(0.05)
    assert not save.done()
    assert not save.observed
    assert save.exception() is None


def test_a_failure_is_raised_to_every_waiter_and_counts_as_observed() -> None:
    save = pending()
    threading.Timer(0.05, save.fail, (SaveFailed("no", step=7),)).start()
    with pytest.raises(SaveFailed):
        save.wait(60)
    with pytest.raises(SaveFailed):
        save.checkpoint_id()
    assert save.observed
    assert isinstance(save.exception(), SaveFailed)


def test_the_id_is_known_before_the_end() -> None:
    save = pending()
    save.opened("ckp_1")
    assert save.checkpoint_id() == "ckp_1"
    assert not save.done()
