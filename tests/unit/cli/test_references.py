"""What names a checkpoint on the command line."""

from __future__ import annotations

import pytest

from shardkeep.cli.exit_codes import CommandError, ExitCode
from shardkeep.cli.references import ById, OfRun, choose, parse_reference
from shardkeep.errors import CheckpointNotCommitted, ConfigurationError, NotFound
from shardkeep.protocol.messages import CheckpointState
from tests.unit.cli.checkpoint_builder import checkpoint_id, summary

COMMITTED = (CheckpointState.COMMITTED,)
STEP_5 = OfRun("p", "r", 5)


def test_references_are_ids_runs_and_steps_of_runs() -> None:
    assert parse_reference(checkpoint_id(7)) == ById(checkpoint_id(7))
    assert parse_reference("p/r") == parse_reference("p/r@latest") == OfRun("p", "r", None)
    assert parse_reference("p/r@0") == OfRun("p", "r", 0)
    assert parse_reference("a.b-c/d_e@12") == OfRun("a.b-c", "d_e", 12)


@pytest.mark.parametrize("text", ["", "ckp_12", "p", "p/r@", "p/r@-1", "p/r@newest", "p/r@1.5"])
def test_a_malformed_reference_is_a_usage_error(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_reference(text)
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize("text", ["p/r/s", "/r", "p/", "p/.r", "p/caf\u00e9", "p/../x"])
def test_E209_a_run_name_that_no_service_takes_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_reference(text)


def test_of_one_step_the_checkpoint_on_the_line_is_meant() -> None:
    found = [summary(3, on_line=False), summary(2), summary(1, on_line=False)]
    assert choose(found, STEP_5, COMMITTED).id == checkpoint_id(2)


def test_of_several_on_the_line_the_last_committed_is_meant() -> None:
    assert choose([summary(2), summary(3), summary(1)], STEP_5, COMMITTED).id == checkpoint_id(3)


def test_one_off_the_line_is_unambiguous() -> None:
    assert choose([summary(2, on_line=False)], STEP_5, COMMITTED).id == checkpoint_id(2)


def test_several_off_the_line_are_listed() -> None:
    with pytest.raises(CommandError, match="none on the run's line") as caught:
        choose([summary(2, on_line=False), summary(1, on_line=False)], STEP_5, COMMITTED)
    assert caught.value.candidates == (checkpoint_id(2), checkpoint_id(1))
    assert caught.value.exit_code is ExitCode.NOT_FOUND


def test_a_step_that_is_not_committed_says_what_it_is() -> None:
    with pytest.raises(CheckpointNotCommitted, match="is aborted"):
        choose([summary(2, state=CheckpointState.ABORTED)], STEP_5, COMMITTED)
    with pytest.raises(NotFound, match="no checkpoint of step 5"):
        choose([], STEP_5, COMMITTED)


def test_earlier_states_win() -> None:
    found = [summary(2, state=CheckpointState.OPEN), summary(1, state=CheckpointState.DELETED)]
    chosen = choose(found, STEP_5, (CheckpointState.COMMITTED, CheckpointState.DELETED, CheckpointState.OPEN))
    assert chosen.id == checkpoint_id(1)
