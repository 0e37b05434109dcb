from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from shardkeep.errors import StateError
from shardkeep.format.values import decode_value, encode_value
from shardkeep.pytorch.rng import RandomStates, stream_seed


def draw_all() -> list[float]:
    return [
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        float(torch.rand(())),
    ]


def is_plain(state: object) -> bool:
    if isinstance(state, dict):
        return all(is_plain(value) for value in state.values())
    if isinstance(state, list):
        return all(map(is_plain, state))
    return state is None or type(state) in (int, float, str, bytes)


def test_E72_every_global_generator_comes_back() -> None:
    states = RandomStates({})
    random.gauss(0, 1)  # leaves a second value waiting inside python's generator
    np.random.randn()
    saved = states.capture()
    expected = draw_all()

    draw_all()
    states.restore(saved)

    assert draw_all() == expected
    assert {"python", "numpy", "torch"} <= set(saved)


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_E79_states_are_plain_data_and_survive_encoding(bits: Callable[[int], np.random.BitGenerator]) -> None:
    generator = np.random.Generator(bits(5))
    own = random.Random(3)
    device = torch.Generator().manual_seed(7)
    states = RandomStates({"noise": generator, "order": own, "drop": device})
    saved = states.capture()
    assert is_plain(saved)

    stored = {kind: decode_value(encode_value(state)) for kind, state in saved.items()}
    expected = (generator.random(4).tolist(), own.random(), torch.rand(3, generator=device).tolist())
    states.restore(stored)

    assert (generator.random(4).tolist(), own.random(), torch.rand(3, generator=device).tolist()) == expected
    assert states.differences(stored) == []


def test_capturing_draws_no_number() -> None:
    states = RandomStates({})
    saved = states.capture()
    states.capture()
    assert states.capture() == saved


def test_E78_reseeding_gives_every_rank_and_kind_a_stream_of_its_own() -> None:
    states = RandomStates({"noise": np.random.default_rng(0)})
    drawn = []
    for rank in range(4):
        states.reseed(seed=0, step=100, rank=rank)
        drawn.append(tuple(draw_all()))
    states.reseed(seed=0, step=100, rank=2)

    assert len(set(drawn)) == 4
    assert tuple(draw_all()) == drawn[2]
    assert stream_seed(seed=0, step=1, rank=11, kind="torch") != stream_seed(seed=0, step=11, rank=1, kind="torch")


def test_differences_name_missing_and_extra_generators() -> None:
    with_item, without = RandomStates({"noise": np.random.default_rng(0)}), RandomStates({})

    assert without.differences(with_item.capture()) == [
        "random generator 'item.noise' was saved and does not exist here"
    ]
    assert with_item.differences(without.capture()) == ["random generator 'item.noise' exists here and was not saved"]


def test_another_bit_generator_is_a_difference_and_is_left_alone() -> None:
    saved = RandomStates({"noise": np.random.default_rng(0)}).capture()
    here = np.random.Generator(np.random.Philox(1))
    states = RandomStates({"noise": here})
    before = states.capture()["item.noise"]

    assert "PCG64" in states.differences(saved)[0]
    states.restore(saved)

    assert states.capture()["item.noise"] == before


def test_E75_a_device_count_mismatch_is_reported_and_each_state_goes_to_its_own_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restored: list[tuple[int, bytes]] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(
        torch.cuda,
        "set_rng_state",
        lambda state, index: restored.append((index, bytes(state.tolist()))),
    )
    states = RandomStates({})
    saved = states.capture() | {"cuda": [b"first", b"second"]}

    assert states.differences(saved) == ["generators of 2 CUDA device(s) were saved and 1 are visible here"]
    states.restore(saved)

    assert restored == [(0, b"first")]


def test_a_state_that_does_not_fit_names_its_generator() -> None:
    states = RandomStates({})
    saved = states.capture() | {"python": {"version": 3, "words": b"\0" * 8, "gauss_next": None}}
    with pytest.raises(StateError, match="'python'"):
        states.restore(saved)
