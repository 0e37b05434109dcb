"""What a failed save raises."""

from __future__ import annotations

from shardkeep.errors import AttemptFenced, ConnectionFailed, InvalidRequest, ReplicasDiverged, SaveFailed
from shardkeep.protocol.messages import AbortInfo
from shardkeep.uploader.failures import error_of_abort, error_of_failure


def test_an_abort_names_step_code_rank_and_reason() -> None:
    error = error_of_abort(AbortInfo(code="session_lapsed", reason="no beat for 120 s", rank=3), step=40)
    assert type(error) is SaveFailed
    assert (error.step, error.code, error.rank) == (40, "session_lapsed", 3)
    assert "no beat for 120 s" in str(error)
    assert "rank 3" in str(error)


def test_a_fence_is_always_itself() -> None:
    assert isinstance(error_of_abort(AbortInfo(code="superseded", reason="attempt 2 began"), step=1), AttemptFenced)
    fenced = AttemptFenced("x", code="attempt_fenced", status=409)
    assert error_of_failure(fenced, step=1, rank=0) is fenced


def test_diverged_replicas_name_tensors_and_ranks() -> None:
    abort = AbortInfo(code="replicas_diverged", reason="differs", ranks=[1, 2], tensors=["a", "b"])
    error = error_of_abort(abort, step=1)
    assert isinstance(error, ReplicasDiverged)
    assert "ranks 1, 2" in str(error)
    assert "tensors a, b" in str(error)


def test_anything_else_becomes_save_failed_with_its_cause() -> None:
    for cause in (ConnectionFailed("gone"), InvalidRequest("no", code="invalid_name", status=422), ValueError("bug")):
        error = error_of_failure(cause, step=5, rank=2)
        assert isinstance(error, SaveFailed)
        assert error.__cause__ is cause
        assert (error.step, error.rank) == (5, 2)
        assert str(cause) in str(error)


def test_an_aborts_lists_are_capped_in_the_message_and_whole_in_the_error() -> None:
    abort = AbortInfo(
        code="coverage_gap",
        reason="a gap",
        ranks=list(range(40)),
        tensors=[f"t{number}" for number in range(30)],
    )
    error = error_of_abort(abort, step=3)
    assert isinstance(error, SaveFailed)
    assert (error.ranks, len(error.tensors)) == (tuple(range(40)), 30)
    assert "15 and 24 more" in str(error)
    assert "t7 and 22 more" in str(error)
