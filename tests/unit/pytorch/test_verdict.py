from __future__ import annotations

import pytest
import torch

from shardkeep.errors import ConfigurationError
from shardkeep.pytorch.resuming import Leniency
from shardkeep.pytorch.verdict import environment, environment_differences
from shardkeep.store.metrics import plain_metrics


def test_an_equal_environment_gives_no_reason() -> None:
    assert environment_differences(environment(2), environment(2)) == []


@pytest.mark.parametrize(
    ("key", "words"),
    [("world_size", "world size was 9"), ("torch", "torch version was 9"), ("threads", "thread count was 9")],
)
def test_each_difference_is_told_with_both_sides(key: str, words: str) -> None:
    here = environment(2)
    (reason,) = environment_differences(here | {key: 9}, here)
    assert reason == f"{words} and is {here[key]}"


def test_what_the_checkpoint_does_not_tell_is_a_difference() -> None:
    saved = environment(1)
    del saved["deterministic_algorithms"]
    assert environment_differences(saved, environment(1)) == [
        "torch.use_deterministic_algorithms was not recorded and is False"
    ]


def test_determinism_flags_count() -> None:
    saved = environment(1)
    torch.use_deterministic_algorithms(True)
    try:
        assert len(environment_differences(saved, environment(1))) == 1
    finally:
        torch.use_deterministic_algorithms(False)


def test_strict_lets_nothing_pass() -> None:
    with pytest.raises(ConfigurationError, match="strict"):
        Leniency(strict=True, cast=True)


def test_metrics_are_numbers_or_refused_by_name() -> None:
    assert plain_metrics({"loss": torch.tensor(0.5), "n": 3}) == {"loss": 0.5, "n": 3.0}
    with pytest.raises(ConfigurationError, match="'grad'"):
        plain_metrics({"grad": torch.zeros(2)})
