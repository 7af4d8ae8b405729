"""``isthmus migrate verify --ddp``: one process and ranks load, augment and normalize the same samples."""

import random

import numpy as np
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, Subset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from isthmus_migrate.verify.compare import compare_spread
from isthmus_migrate.verify.record import Record
from isthmus_migrate.verify.run import Run, Side
from isthmus_migrate.verify.shares import BATCH_NORM, share


class Augmented:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor([index, random.random(), np.random.rand(), torch.rand(()).item()])


@pytest.fixture
def noted(monkeypatch):
    """Notes of :func:`share`, whose effects end with the test."""
    monkeypatch.setattr(RandomSampler, "__iter__", RandomSampler.__iter__)
    monkeypatch.setattr(DistributedSampler, "shuffle", None, raising=False)
    monkeypatch.setattr(_MapDatasetFetcher, "__init__", _MapDatasetFetcher.__init__)
    monkeypatch.setattr(DistributedDataParallel, "__init__", DistributedDataParallel.__init__)
    found = []
    with torch.random.fork_rng(devices=[]):
        share(3, found.append)
        yield found


def test_samples_in_the_order_of_their_data_set(noted):
    sampler = RandomSampler(range(6), replacement=True, num_samples=8)
    ranks = [list(DistributedSampler(range(6), 2, rank, shuffle=True)) for rank in (0, 1)]
    assert [batch.tolist() for batch in DataLoader(range(6), batch_size=4, sampler=sampler)] == [
        [0, 1, 2, 3],
        [4, 5, 0, 1],
    ]
    assert ranks == [[0, 2, 4], [1, 3, 5]]
    assert list(RandomSampler(range(3))) == [0, 1, 2]


@pytest.mark.parametrize("data", [Augmented(), Subset(Augmented(), range(8))])
def test_a_sample_draws_the_same_numbers_whoever_loads_it(noted, data):
    random.seed(1)
    before = random.getstate(), torch.get_rng_state()
    (whole,) = DataLoader(data, batch_size=8, generator=torch.Generator())
    after = random.getstate(), torch.get_rng_state()
    shares = [
        next(iter(DataLoader(data, batch_size=4, sampler=DistributedSampler(data, 2, rank))))
        for rank in (0, 1)
    ]
    assert torch.equal(torch.stack(shares, 1).flatten(0, 1), whole)
    assert len({tuple(row) for row in whole[:, 1:].tolist()}) == 8, "each sample has its own numbers"
    assert before[0] == after[0] and torch.equal(before[1], after[1]), (
        "the program's generators are untouched"
    )


def test_one_rank_keeps_its_batch_norm(noted):
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:  # the model goes first: as the last owner of a group it joins gloo's thread while it holds Python's lock
        kind = type(DistributedDataParallel(torch.nn.Sequential(torch.nn.BatchNorm1d(3))).module[0])
    finally:
        torch.distributed.destroy_process_group()
    assert kind is torch.nn.BatchNorm1d
    assert noted == [] and "SyncBatchNorm" in BATCH_NORM


def _run(tmp_path, *arrays):
    records = [
        Record(rank, losses=[1.0], parameters={"a": np.array(array), "b": np.array([1e-9 * (rank + 1)])})
        for rank, array in enumerate(arrays)
    ]
    return Run(Side("", tmp_path, (), tmp_path, tmp_path, False), 0, 0.0, [[]], [], records)


@pytest.mark.parametrize(("of_rank_1", "same"), [([2.0, 3.0], True), ([2.0, 3.001], False)])
def test_the_parameters_of_each_rank_are_compared(tmp_path, of_rank_1, same):
    """A parameter without a gradient, here b, is rounding only; it is judged by the size of the others."""
    compared = compare_spread(_run(tmp_path, [2.0, 3.0]), _run(tmp_path, [2.0, 3.0], of_rank_1))
    (parameters,) = (each for each in compared if each.subject == "parameters")
    assert (parameters.same, parameters.compared) == (same, 2)
    assert same or "rank 1" in parameters.detail
