from __future__ import annotations

import torch

from shardkeep.pytorch.ties import Ties


def test_the_same_parameter_is_tied_under_its_first_name() -> None:
    ties, parameter = Ties(), torch.nn.Parameter(torch.zeros(2))
    assert ties.first_name(parameter, "a") == "a"
    assert ties.first_name(parameter, "b") == "a"


def test_two_views_of_the_same_memory_are_tied_and_others_are_not() -> None:
    ties, memory = Ties(), torch.zeros(4, 4)
    assert ties.first_name(memory, "a") == "a"
    assert ties.first_name(memory.detach(), "b") == "a"
    assert ties.first_name(memory.t(), "c") == "c"
    assert ties.first_name(memory[:2], "d") == "d"
    assert ties.first_name(memory[2:], "e") == "e"
    assert ties.first_name(memory.view(torch.int32), "f") == "f"


def test_empty_tensors_are_tied_by_identity_only() -> None:
    ties, empty = Ties(), torch.zeros(0)
    assert ties.first_name(empty, "a") == "a"
    assert ties.first_name(empty.detach(), "b") == "b"
    assert ties.first_name(empty, "c") == "a"


def test_E107_memory_that_is_freed_and_used_again_ties_nothing() -> None:
    ties = Ties()
    names = {ties.first_name(torch.full((16, 16), float(expert)), f"expert{expert}") for expert in range(64)}
    assert len(names) == 64
