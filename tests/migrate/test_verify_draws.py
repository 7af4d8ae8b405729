"""``isthmus migrate verify``: equal random numbers and an equal order of samples on all devices."""

import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

from isthmus.migrate.verify.draws import DrawOnCpu, shuffle_nothing


def draws(device):
    torch.manual_seed(3)
    layer = torch.nn.Linear(4, 4, device=device)
    x = torch.randn(5, 4, device=device)
    y = torch.nn.functional.dropout(layer(x), 0.5)
    z = torch.empty_like(y).normal_().uniform_(-1, 1)
    out = torch.empty(6, device=device)
    torch.rand(6, out=out)
    numbers = [torch.randperm(9, device=device), torch.bernoulli(torch.rand_like(y)), torch.rand(2)]
    return [each.detach().cpu() for each in (layer.weight, y, z, out, *numbers)]


def test_all_devices_draw_from_one_generator():
    expected = draws("cpu")
    with DrawOnCpu():
        found = draws("chip")
    assert all(torch.equal(one, two) for one, two in zip(expected, found, strict=True))
    assert not all(torch.equal(one, two) for one, two in zip(expected, draws("chip"), strict=True))


def test_a_generator_of_the_users_own_keeps_drawing():
    expected = torch.rand(3, generator=torch.Generator().manual_seed(5))
    before = torch.get_rng_state()
    with DrawOnCpu():
        found = torch.rand(3, device="chip", generator=torch.Generator("chip").manual_seed(5))
    assert torch.equal(found.cpu(), expected) and torch.equal(torch.get_rng_state(), before)


def test_samples_in_the_order_of_their_data_set(monkeypatch):
    monkeypatch.setattr(RandomSampler, "__iter__", RandomSampler.__iter__)
    monkeypatch.setattr(DistributedSampler, "shuffle", None, raising=False)
    before = torch.get_rng_state()
    shuffle_nothing()
    loader = DataLoader(
        range(6), batch_size=4, sampler=RandomSampler(range(6), replacement=True, num_samples=8)
    )
    ranks = [list(DistributedSampler(range(6), 2, rank, shuffle=True)) for rank in (0, 1)]
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 0, 1]]
    assert ranks == [[0, 2, 4], [1, 3, 5]]
    assert list(RandomSampler(range(3))) == [0, 1, 2]
    torch.set_rng_state(before)
