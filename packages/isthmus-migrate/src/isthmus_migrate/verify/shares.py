"""One process and the ranks that share its batches: the same samples, random numbers of samples and statistics."""

import functools
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, RandomSampler
from torch.utils.data._utils.fetch import _MapDatasetFetcher

BATCH_NORM = (
    "BatchNorm with the statistics of each rank's share: here it was SyncBatchNorm, as in one process"
)


def share(seed: int, note: Callable[[str], None]) -> None:
    """Let this process load and normalize samples as every other process that shares its batches, permanently.

    Args:
        seed: seed of the random numbers that samples draw.
        note: called with what ran otherwise than in the program.
    """
    _load_in_order()
    fetched = _MapDatasetFetcher.__init__

    def fetch(self: Any, dataset: Any, *arguments: Any) -> None:
        fetched(self, _Samples(dataset, seed), *arguments)

    _MapDatasetFetcher.__init__ = fetch  # type: ignore[assignment,method-assign]
    DistributedDataParallel.__init__ = _wrap_constructor(DistributedDataParallel.__init__, note)  # type: ignore[method-assign]


def _load_in_order() -> None:
    """Load samples in the order of their data set; shuffled by different generators, no batch would be the same."""

    def in_order(sampler: RandomSampler) -> Iterator[int]:
        return (number % len(sampler.data_source) for number in range(sampler.num_samples))

    RandomSampler.__iter__ = in_order  # type: ignore[method-assign]
    DistributedSampler.shuffle = property(lambda sampler: False, lambda sampler, value: None)  # type: ignore[assignment]


class _Samples:
    """A map-style data set whose samples draw their own random numbers, whichever process loads them."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset = dataset
        self._seed = seed

    def __getitem__(self, index: Any) -> Any:
        with _drawing(zlib.crc32(f"{self._seed} {index}".encode())):
            return self._dataset[index]

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        return [self[index] for index in indices]


@contextmanager
def _drawing(seed: int) -> Iterator[None]:
    """Draw from generators with a seed, and leave the generators as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def _wrap_constructor(wrap: Callable[..., None], note: Callable[[str], None]) -> Callable[..., None]:
    """Return DistributedDataParallel's constructor for a module whose BatchNorm spans all ranks."""

    @functools.wraps(wrap)
    def wrapped(self: Any, module: torch.nn.Module, *arguments: Any, **options: Any) -> None:
        kinds = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
        if torch.distributed.get_world_size() > 1 and any(
            isinstance(each, kinds) for each in module.modules()
        ):
            note(BATCH_NORM)
            module = torch.nn.SyncBatchNorm.convert_sync_batchnorm(module)
        wrap(self, module, *arguments, **options)

    return wrapped
