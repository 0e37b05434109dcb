"""CountingLoader: the DataLoader of a ResumableSampler; it counts batches as it yields them, not as workers fetch."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from shardkeep.errors import ConfigurationError
from shardkeep.pytorch.sampler import ResumableSampler

_CHOSEN_BY_SAMPLER: Final = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "generator")


class SeededBatch(list[int]):
    """Dataset indices of one rank's batch with the seed of what is drawn while fetching it."""

    def __init__(self, indices: Sequence[int], seed: int) -> None:
        super().__init__(indices)
        self.seed = seed

    def __reduce__(self) -> tuple[type[SeededBatch], tuple[list[int], int]]:
        return SeededBatch, (list(self), self.seed)


class SeededDataset(Dataset[Any]):
    """Seeds python, numpy and torch (CPU) before each batch is fetched.

    So random augmentation depends on the place in the stream (and the rank), not on how many workers there are, what
    they fetched before, or whether they were started anew. In the main process (num_workers=0) the training's own
    generators are put back after the fetch.
    """

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset = dataset

    def __getitems__(self, batch: SeededBatch) -> Any:
        if get_worker_info() is not None:
            _seed_generators(batch.seed)
            return self._fetch(batch)
        kept = (random.getstate(), np.random.get_state(), torch.get_rng_state())
        try:
            _seed_generators(batch.seed)
            return self._fetch(batch)
        finally:
            random.setstate(kept[0])
            np.random.set_state(kept[1])
            torch.set_rng_state(kept[2])

    def _fetch(self, batch: SeededBatch) -> Any:
        fetch_many = getattr(self._dataset, "__getitems__", None)
        return fetch_many(list(batch)) if fetch_many else [self._dataset[index] for index in batch]


class _Batches:
    """The batch sampler DataLoader iterates: batches from the sampler's present position on, with their seeds."""

    def __init__(self, sampler: ResumableSampler) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[SeededBatch]:
        first = self._sampler.samples
        while True:
            yield SeededBatch(self._sampler.rank_batch(first), self._sampler.batch_seed(first))
            first += self._sampler.batch_size


class CountingLoader(DataLoader[Any]):
    """Endless batches of this rank, from the sampler's position on; each `iter()` goes on where the last one stopped.

    A batch counts as trained on when it is yielded: save after training on it. An iterator that runs while another
    position is loaded goes on there. What reads ahead of the training loop (a device prefetcher) must be counted by
    the user: see `ResumableSampler.count`. Exact on resume: the samples, on any number of ranks and workers; and
    what python, numpy and torch's CPU generator draw while fetching and collating a batch in a worker, for the same
    world and batch size. Not: draws of generators a dataset owns, and what `worker_init_fn` does once a worker.
    """

    def __init__(self, dataset: Dataset[Any], sampler: ResumableSampler, **options: Any) -> None:
        _check_options(dataset, sampler, options)
        self.resumable = sampler
        super().__init__(
            SeededDataset(dataset), batch_sampler=_Batches(sampler), generator=torch.Generator(), **options
        )

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # DataLoader names its private iterator class
        sampler = self.resumable
        position = -1
        fetched: Iterator[Any] = iter(())
        while True:
            if sampler.samples != position:
                fetched = iter(())  # let go of the old workers before starting new ones
                fetched = self._fetch_from_position()
            batch = next(fetched)
            sampler.count()
            position = sampler.samples
            yield batch

    def __len__(self) -> int:
        raise TypeError("a ResumableSampler's loader has no length: it goes on from epoch to epoch until left")

    def state_dict(self) -> dict[str, object]:
        """The sampler's."""
        return self.resumable.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The sampler's."""
        self.resumable.load_state_dict(state)

    def _fetch_from_position(self) -> Iterator[Any]:
        # Workers get their base seed from here, so that it is a function of the position and not of a global draw.
        self.generator.manual_seed(self.resumable.batch_seed(self.resumable.samples))
        return super().__iter__()


def _check_options(dataset: Dataset[Any], sampler: ResumableSampler, options: Mapping[str, Any]) -> None:
    refused = [name for name in _CHOSEN_BY_SAMPLER if name in options]
    if refused:
        raise ConfigurationError(f"the sampler chooses {', '.join(refused)}; give the loader the other options only")
    if not options.get("in_order", True):
        raise ConfigurationError("in_order=False hands batches over out of order, so no position could be kept")
    if isinstance(dataset, IterableDataset):
        raise ConfigurationError("an iterable dataset has its own order; ResumableSampler needs a map-style dataset")
    length = len(dataset) if hasattr(dataset, "__len__") else sampler.dataset_length
    if length != sampler.dataset_length:
        raise ConfigurationError(
            f"the dataset has {length} samples and the sampler was made for {sampler.dataset_length}"
        )


def _seed_generators(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
