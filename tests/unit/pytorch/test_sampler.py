from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset

from shardkeep.errors import ConfigurationError, LoadError
from shardkeep.pytorch.sampler import ResumableSampler, permutation


class Numbers(Dataset[int]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class Augmented(Numbers):
    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index, random.random(), np.random.rand(), torch.rand(()).item()], dtype=torch.float64)


def take(loader: Any, count: int) -> list[list[int]]:
    return [batch.tolist() for batch in islice(loader, count)]


def make_sampler(**options: Any) -> ResumableSampler:
    return ResumableSampler(options.pop("length", 64), **({"batch_size": 4, "seed": 3} | options))


@given(
    length=st.integers(1, 60),
    world=st.integers(1, 7),
    extra=st.integers(0, 20),
    seed=st.integers(0, 2**64 - 1),
    batches=st.integers(1, 12),
)
@settings(deadline=None)
def test_the_stream_is_seeded_epochs_cut_alike_for_any_world_size(
    length: int, world: int, extra: int, seed: int, batches: int
) -> None:
    size = world + extra
    samplers = [
        ResumableSampler(length, batch_size=size, seed=seed, rank=rank, world_size=world) for rank in range(world)
    ]
    parts = [list(islice(sampler, batches)) for sampler in samplers]
    seen = [index for batch in range(batches) for part in parts for index in part[batch]]

    epochs = -(-size * batches // length)
    stream = [index for epoch in range(epochs) for index in permutation(length, seed=seed, epoch=epoch).tolist()]
    assert seen == stream[: size * batches]
    assert max(map(len, (part[0] for part in parts))) - min(map(len, (part[0] for part in parts))) <= 1


def test_each_epoch_is_another_permutation_and_no_version_changes_it() -> None:
    assert sorted(permutation(100, seed=0, epoch=0)) == list(range(100))
    assert permutation(8, seed=0, epoch=0).tolist() == [0, 2, 1, 5, 4, 3, 6, 7]
    assert permutation(8, seed=0, epoch=1).tolist() != permutation(8, seed=0, epoch=0).tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_E58_E59_every_sample_comes_once_an_epoch_across_a_resume_in_the_middle(workers: int) -> None:
    reference = take(make_sampler().loader(Numbers(64)), 64)
    first = make_sampler()
    loader = first.loader(Numbers(64), num_workers=workers)
    seen = take(loader, 20)
    second = make_sampler()
    second.load_state_dict(first.state_dict())
    seen += take(second.loader(Numbers(64), num_workers=workers), 44)

    assert seen == reference
    for epoch in range(4):
        assert sorted(index for batch in seen[epoch * 16 : epoch * 16 + 16] for index in batch) == list(range(64))


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_E61_the_position_is_what_was_yielded_over_a_chain_of_resumes(workers: int, persistent: bool) -> None:
    reference = take(make_sampler().loader(Numbers(64)), 50)
    state = make_sampler().state_dict()
    seen: list[list[int]] = []
    for count in (30, 10, 10):
        sampler = make_sampler()
        sampler.load_state_dict(state)
        seen += take(sampler.loader(Numbers(64), num_workers=workers, persistent_workers=persistent), count)
        state = sampler.state_dict()

    assert seen == reference
    assert state["global_batches"] == 50


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, True)])
def test_a_running_iterator_follows_a_position_loaded_meanwhile(workers: int, persistent: bool) -> None:
    reference = take(make_sampler().loader(Numbers(64)), 12)
    sampler = make_sampler()
    loader = sampler.loader(Numbers(64), num_workers=workers, persistent_workers=persistent)
    batches = iter(loader)
    kept = sampler.state_dict()
    first = [next(batches).tolist() for _ in range(7)]
    sampler.load_state_dict(kept)
    again = [next(batches).tolist() for _ in range(3)]

    assert first == reference[:7]
    assert again == reference[:3]
    assert take(loader, 4) == reference[3:7], "a new iterator goes on where the last one stopped"


def test_E67_the_state_gives_micro_batches_and_samples_with_their_units() -> None:
    sampler = make_sampler()
    batches = iter(sampler.loader(Numbers(64)))
    for _optimizer_step in range(10):
        for _micro_batch in range(4):
            next(batches)
    state = sampler.state_dict()

    assert (state["global_batches"], state["samples"]) == (40, 160)
    assert "global batches" in str(state["units"])


def test_E68_a_batch_counts_the_moment_it_is_handed_over() -> None:
    sampler = make_sampler()
    for number, _batch in enumerate(sampler.loader(Numbers(64)), start=1):
        assert sampler.batches == number
        if number == 10:
            break
    resumed = make_sampler()
    resumed.load_state_dict(sampler.state_dict())
    assert take(resumed.loader(Numbers(64)), 1) == take(make_sampler().loader(Numbers(64)), 11)[10:]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_what_augmentation_draws_does_not_depend_on_workers_or_on_a_resume(workers: int) -> None:
    reference = [batch.clone() for batch in islice(make_sampler().loader(Augmented(64)), 6)]
    sampler = make_sampler()
    sampler.load_state_dict(sampler.state_dict() | {"samples": 16})
    resumed = list(islice(sampler.loader(Augmented(64), num_workers=workers), 2))

    assert torch.equal(torch.stack(resumed), torch.stack(reference[4:]))


def test_fetching_in_the_main_process_leaves_the_training_generators_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    take(make_sampler().loader(Augmented(64)), 3)
    assert torch.equal(torch.rand(3), expected)


def test_making_an_iterator_draws_nothing_from_the_global_generator() -> None:
    before = torch.get_rng_state()
    iterator = iter(make_sampler().loader(Numbers(64), num_workers=2))
    next(iterator)
    assert torch.equal(torch.get_rng_state(), before)


def test_another_batch_size_goes_on_with_the_next_unseen_sample() -> None:
    sampler = make_sampler(batch_size=4)
    take(sampler.loader(Numbers(64)), 3)
    wider = make_sampler(batch_size=6)
    wider.load_state_dict(sampler.state_dict())
    assert take(wider.loader(Numbers(64)), 1)[0] == wider.indices(12, 18)


@pytest.mark.parametrize("change", [{"seed": 4}, {"length": 65}, {"shuffle": False}])
def test_a_position_in_another_order_is_refused(change: dict[str, Any]) -> None:
    saved = make_sampler().state_dict()
    with pytest.raises(LoadError, match=r"seed|dataset_length|shuffle"):
        make_sampler(**change).load_state_dict(saved)


def test_without_shuffling_the_order_is_the_dataset() -> None:
    assert make_sampler(shuffle=False, length=6).indices(4, 9) == [4, 5, 0, 1, 2]


@pytest.mark.parametrize("options", [{"batch_size": 3}, {"shuffle": True}, {"generator": None}, {"in_order": False}])
def test_options_that_would_choose_samples_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        make_sampler().loader(Numbers(64), **options)


def test_datasets_that_do_not_fit_are_refused() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    with pytest.raises(ConfigurationError, match="iterable"):
        make_sampler().loader(Stream())
    with pytest.raises(ConfigurationError, match="65 samples"):
        make_sampler().loader(Numbers(65))
    with pytest.raises(ConfigurationError, match="all ranks"):
        ResumableSampler(10, batch_size=1, rank=0, world_size=2)
    with pytest.raises(ConfigurationError, match="does not exist"):
        ResumableSampler(10, batch_size=4, rank=2, world_size=2)


def test_a_loader_has_no_length() -> None:
    with pytest.raises(TypeError, match="no length"):
        len(make_sampler().loader(Numbers(64)))


def test_no_warning_is_given() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        take(make_sampler().loader(Numbers(64)), 2)
