"""``isthmus migrate verify``: equal random numbers on all devices."""

import torch

from isthmus_migrate.verify.draws import DrawOnCpu


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
