"""``torch.nn.DataParallel`` on two chips, without the shim."""

import torch
from torch import nn

from isthmus.chip.patches import data_parallel


def test_a_step_on_two_chips_is_that_of_one():
    torch.manual_seed(0)
    inner = nn.Linear(4, 2).to("chip")
    model = nn.DataParallel(inner)
    x = torch.randn(6, 4)
    expected = nn.functional.linear(x, inner.weight.cpu(), inner.bias.cpu())
    output = model(x.to("chip"))
    output.sum().backward()
    assert model.device_ids == [0, 1] and output.device == inner.weight.grad.device == torch.device("chip", 0)
    torch.testing.assert_close(output.cpu(), expected)
    torch.testing.assert_close(inner.weight.grad.cpu(), x.sum(0).expand(2, 4))


def test_replicas_have_the_buffers_too():
    model = nn.DataParallel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).to("chip"))
    output = model(torch.ones(8, 4, device="chip"))
    assert output.shape == (8, 3) and model.module[1].running_mean.device == torch.device("chip", 0)


def test_leaving_restores_pytorch():
    ours = torch._C._scatter
    data_parallel.uninstall()
    try:  # a build for CUDA has its own
        assert (
            hasattr(torch._C, "_scatter") == torch._C._has_cuda
            and getattr(torch._C, "_scatter", None) != ours
        )
    finally:
        data_parallel.install()
    assert torch._C._scatter.__module__ == data_parallel.__name__
