"""Autograd on the chip."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.privateuse1.inventory import covers


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="chip", requires_grad=True)


@covers("autograd", "test_autograd_init")
@covers("openreg", "test_autograd_init")
def test_each_device_has_a_backward_thread():
    with torch.autograd.set_multithreading_enabled(True):
        leaf(2).sum().backward()
    names = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
    assert {f"pt_autograd_{index}" for index in range(torch.accelerator.device_count())} <= names


@covers("autograd", "test_autograd_no_grad", "test_autograd_detach")
def test_without_gradients():
    x = leaf(2, 3)
    with torch.no_grad():
        inside = x * 2
    for tensor in (inside, x.detach(), x.detach() * 2):
        assert not tensor.requires_grad and tensor.grad_fn is None
    assert (x * 2).requires_grad


@covers("autograd", "test_autograd_retain_grad", "test_autograd_multiple_backward")
def test_gradients_accumulate():
    x = leaf(2, 3)
    y = x * 2
    y.retain_grad()
    total = y.sum()
    total.backward(retain_graph=True)
    first = x.grad.clone()
    total.backward()
    assert torch.equal(first.cpu(), torch.full((2, 3), 2.0))
    assert torch.equal(x.grad.cpu(), 2 * first.cpu())
    assert torch.equal(y.grad.cpu(), torch.full((2, 3), 2.0))


@covers("autograd", "test_autograd_cross_device")
def test_the_gradient_of_a_cpu_leaf_is_on_the_cpu():
    x = torch.randn(2, 3, requires_grad=True)
    (x.to("chip") * 3).sum().backward()
    assert x.grad.is_cpu
    assert torch.equal(x.grad, torch.full((2, 3), 3.0))
