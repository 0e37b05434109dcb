from __future__ import annotations

from pathlib import Path

import pytest

from shardkeep.errors import ConfigurationError
from shardkeep.pytorch.agreement import Agreement, Wish
from shardkeep.pytorch.process_groups import join_ranks, scheduler_labels
from tests.distributed import agreements
from tests.distributed.launcher import Ranks, run_ranks


def test_the_highest_wish_is_known_to_all_one_boundary_later(tmp_path: Path) -> None:
    assert run_ranks(agreements.wish_on_one_rank, 3, directory=tmp_path) == [[0, 0, 1, 2]] * 3


def test_a_save_fulfils_the_wish_handed_in_before_it_but_no_stop(tmp_path: Path) -> None:
    assert run_ranks(agreements.fulfil_what_was_handed_in, 2, directory=tmp_path) == [[0, 0, 1, 1, 2]] * 2


def test_a_boundary_does_not_wait_for_a_slower_rank(tmp_path: Path) -> None:
    found = run_ranks(agreements.do_not_wait_for_a_slow_rank, 2, directory=tmp_path, passed=tmp_path / "passed")
    assert found == [Wish.SAVE, Wish.SAVE]


def test_a_rank_that_left_is_an_error_that_says_so(tmp_path: Path) -> None:
    with Ranks(2, directory=tmp_path) as ranks:
        ranks.start(agreements.lose_a_rank)
        assert "another rank has left" in ranks.results()[0].value


def test_all_ranks_share_one_launch_id_and_each_launch_has_its_own(tmp_path: Path) -> None:
    seen = run_ranks(agreements.share_a_launch_id, 3, directory=tmp_path)
    assert len({launch for launch, *_ in seen}) == 1
    assert seen[0][0] != seen[0][1]
    assert [place for _, _, *place in seen] == [[0, 3], [1, 3], [2, 3]]


def test_rank_and_world_size_that_contradict_the_group_are_refused(tmp_path: Path) -> None:
    assert all("contradict" in said for said in run_ranks(agreements.contradict_the_group, 2, directory=tmp_path))


def test_one_rank_agrees_with_itself_at_once() -> None:
    agreement = Agreement(None)
    assert agreement.exchange(Wish.SAVE) is Wish.SAVE
    assert agreement.finish(1) is Wish.NOTHING


def test_several_ranks_without_a_group_need_a_launch_id(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="launch_id"):
        join_ranks(rank=1, world_size=2)
    assert join_ranks(rank=1, world_size=2, launch_id="ab" * 16).launch_id == "ab" * 16
    monkeypatch.setenv("SLURM_NTASKS", "4")
    with pytest.raises(ConfigurationError, match="init_process_group"):
        join_ranks()


def test_scheduler_ids_are_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert scheduler_labels()["slurm.job_id"] == "77"
