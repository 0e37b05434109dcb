"""ResumableSampler: an endless, seeded order of samples that any number of ranks cuts alike and enters at any place.

The stream is the concatenation of one permutation per epoch, cut into global batches also across epoch borders. Its
position is what the training loop took, counted at the moment a batch is handed over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import torch.distributed
from torch.utils.data import Dataset

from shardkeep.errors import ConfigurationError, LoadError

if TYPE_CHECKING:
    from shardkeep.pytorch.loader import CountingLoader

STATE_VERSION: Final = 1
Indices = npt.NDArray[np.int64]


def permutation(length: int, *, seed: int, epoch: int) -> Indices:
    """The order of epoch `epoch`: a stable argsort of Philox words keyed by (seed, epoch); equal on every numpy.

    Memory: 8 bytes a sample kept, 8 more while it is made.
    """
    key = np.array([seed % 2**64, epoch], dtype=np.uint64)  # a plain list of large integers would become floats
    words = np.random.Philox(key=key).random_raw(length)
    return np.argsort(words, kind="stable").astype(np.int64, copy=False)


class ResumableSampler:
    """The order in which samples of a map-style dataset are trained on, and how far training came.

    `batch_size` is global: rank r takes samples [B*r//W, B*(r+1)//W) of each global batch, so parts differ by at most
    one sample where W does not divide B, and the stream is the same for any W. There is no last, smaller batch:
    a global batch goes on into the next epoch. `rank` and `world_size` default to torch.distributed's, else 0 of 1;
    under tensor or pipeline parallelism give the data-parallel ones. The state is equal on all ranks.
    """

    def __init__(
        self,
        dataset_length: int,
        *,
        batch_size: int,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        shuffle: bool = True,
    ) -> None:
        self.rank, self.world_size = _own_place(rank, world_size)
        if dataset_length < 1:
            raise ConfigurationError(f"a dataset of {dataset_length} samples cannot be sampled; it needs at least one")
        if batch_size < self.world_size:
            raise ConfigurationError(
                f"batch_size counts the samples of all ranks together; {batch_size} leave some of {self.world_size} "
                "ranks without any"
            )
        self.dataset_length = dataset_length
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self._samples = 0
        self._epoch_order: tuple[int, Indices] | None = None

    @property
    def samples(self) -> int:
        """Samples of the stream that training took, over all ranks and epochs."""
        return self._samples

    @property
    def batches(self) -> int:
        """Global batches that training took (micro-batches: not optimizer steps), at the present batch size."""
        return self._samples // self.batch_size

    @property
    def epoch(self) -> int:
        """The epoch of the next sample, from 0."""
        return self._samples // self.dataset_length

    def count(self) -> None:
        """One more global batch was handed to training. Called by the loader; call it when looping by hand."""
        self._samples += self.batch_size

    def rank_batch(self, first_sample: int) -> list[int]:
        """Dataset indices of this rank's part of the global batch that starts at `first_sample` of the stream."""
        start = first_sample + self.batch_size * self.rank // self.world_size
        stop = first_sample + self.batch_size * (self.rank + 1) // self.world_size
        return self.indices(start, stop)

    def indices(self, start: int, stop: int) -> list[int]:
        """Dataset indices of samples [start, stop) of the stream."""
        found: list[int] = []
        while start < stop:
            epoch, offset = divmod(start, self.dataset_length)
            end = min(offset + stop - start, self.dataset_length)
            found += self._order(epoch)[offset:end].tolist()
            start += end - offset
        return found

    def __iter__(self) -> Iterator[list[int]]:
        """Batches of this rank from the present position on, without end. Does not count; see `count`."""
        first = self._samples
        while True:
            yield self.rank_batch(first)
            first += self.batch_size

    def loader(self, dataset: Dataset[Any], **options: Any) -> CountingLoader:
        """A DataLoader over `dataset` in this order, which counts batches as it yields them. See `CountingLoader`.

        `options` are DataLoader's, without those that choose samples.
        """
        from shardkeep.pytorch.loader import CountingLoader

        return CountingLoader(dataset, self, **options)

    def state_dict(self) -> dict[str, object]:
        """The position with its units, and what the order depends on."""
        return {
            "version": STATE_VERSION,
            "samples": self._samples,
            "global_batches": self.batches,
            "units": "samples and global batches handed to the training loop, over all ranks and epochs",
            "batch_size": self.batch_size,
            "dataset_length": self.dataset_length,
            "seed": self.seed,
            "shuffle": self.shuffle,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a saved position; loaders made before follow. Another batch size goes on with the next unseen sample.

        Errors: LoadError when the order would be another one (seed, dataset length, shuffle).
        """
        self.check_state(state)
        self._samples = int(state["samples"])

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Errors: LoadError when `state` is not a position in this order. Changes nothing."""
        if state.get("version") != STATE_VERSION:
            raise LoadError(f"sampler state of version {state.get('version')!r}; this one reads {STATE_VERSION}")
        for key in ("dataset_length", "seed", "shuffle"):
            if state[key] != getattr(self, key):
                raise LoadError(
                    f"the saved data position is in another order: {key} was {state[key]!r} and is "
                    f"{getattr(self, key)!r} here; use the saved one, or leave the sampler out of the keeper"
                )

    def batch_seed(self, first_sample: int) -> int:
        """Seed of what is drawn while fetching this rank's part of the global batch at `first_sample` (63 bits)."""
        text = f"shardkeep batch 1/{self.seed}/{first_sample}/{self.rank}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1

    def _order(self, epoch: int) -> Indices:
        if self._epoch_order is None or self._epoch_order[0] != epoch:
            make: Callable[[], Indices] = (
                (lambda: permutation(self.dataset_length, seed=self.seed, epoch=epoch))
                if self.shuffle
                else (lambda: np.arange(self.dataset_length, dtype=np.int64))
            )
            self._epoch_order = None
            self._epoch_order = (epoch, make())
        return self._epoch_order[1]


def _own_place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if (rank is None) != (world_size is None):
        raise ConfigurationError("give both rank and world_size of the sampler, or neither")
    if rank is None or world_size is None:
        ready = torch.distributed.is_available() and torch.distributed.is_initialized()
        return (torch.distributed.get_rank(), torch.distributed.get_world_size()) if ready else (0, 1)
    if not 0 <= rank < world_size:
        raise ConfigurationError(f"rank {rank} of {world_size} does not exist")
    return rank, world_size
