"""RMSNorm and add + RMSNorm by every implementation, on CPU tensors and on the chip."""

import pytest
import torch

from isthmus import ops
from tests.helpers.ops_checks import against_float64, by_each, in_each_dtype, leaf, on_each_device

SHAPES = [(2, 3, 33), (1, 1), (5, 1031), (4, 64), (0, 7), (3, 5, 0)]


def reference(x, weight, eps=1e-6):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)


@on_each_device
@by_each
@in_each_dtype
@pytest.mark.parametrize("shape", SHAPES)
def test_against_float64(device, implementation, dtype, shape):
    x, residual = leaf(*shape, device=device, dtype=dtype), leaf(*shape, device=device, dtype=dtype)
    weight = leaf(shape[-1], device=device, dtype=dtype)
    with ops.use("rms_norm", implementation), ops.use("add_rms_norm", implementation):
        against_float64(ops.rms_norm, reference, [x, weight])
        against_float64(ops.add_rms_norm, lambda x, r, w: (reference(x + r, w), x + r), [x, residual, weight])


@pytest.mark.parametrize("size", [1024, 1023])
def test_a_result_too_large_for_the_caches_is_that_of_its_parts(size):
    x = torch.randn((25 << 20) // (4 * size), size)
    residual, weight = x.roll(1), torch.randn(size)

    def computed(x, residual):
        x = x.requires_grad_()
        out, total = ops.add_rms_norm(x, residual, weight)
        return out, total, *torch.autograd.grad([out, total], x, [residual, out.detach()])

    parts = [computed(*each) for each in zip(x.chunk(4), residual.chunk(4), strict=True)]
    for whole, part in zip(computed(x, residual), zip(*parts, strict=True), strict=True):
        assert torch.equal(whole, torch.cat(part))


@in_each_dtype
def test_a_weight_of_another_dtype(dtype):
    x, weight = leaf(4, 35, dtype=dtype), leaf(35, dtype=torch.float32)
    against_float64(ops.rms_norm, reference, [x, weight])
    out = ops.rms_norm(x, weight)
    assert out.dtype == dtype
    out.sum().backward()
    assert weight.grad.dtype == torch.float32


def test_several_dimensions_and_the_offset_of_gemma():
    x, weight = leaf(3, 4, 5), leaf(4, 5)
    got = ops.rms_norm(x, weight, 1e-3, unit_offset=True)
    torch.testing.assert_close(got, torch.nn.functional.rms_norm(x, (4, 5), weight + 1, 1e-3))


def test_the_module_with_and_without_a_residual():
    layer = ops.RMSNorm(16, eps=1e-5)
    x, residual = torch.randn(3, 16), torch.randn(3, 16)
    torch.testing.assert_close(layer(x), torch.nn.functional.rms_norm(x, (16,), layer.weight, 1e-5))
    out, total = layer(x, residual)
    assert torch.equal(total, x + residual)
    torch.testing.assert_close(out, layer(total))
    assert list(layer.state_dict()) == ["weight"]


@on_each_device
def test_autocast_keeps_the_wider_residual(device):
    x = torch.randn(4, 8, device=device, dtype=torch.bfloat16)
    residual = torch.randn(4, 8, device=device)
    with pytest.raises(ValueError, match="must have the same shape and dtype"):
        ops.add_rms_norm(x, residual)
    with torch.autocast(device, dtype=torch.bfloat16):
        out, total = ops.add_rms_norm(x, residual)
    assert out.dtype == total.dtype == torch.float32


def test_a_weight_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"weight has shape \(5,\) and input \(2, 4\)"):
        ops.rms_norm(torch.randn(2, 4), torch.ones(5))


@on_each_device
def test_compiled_without_a_break(device):
    def step(x, residual, weight):
        out, total = ops.add_rms_norm(x, residual, weight)
        return (out * total).sum()

    inputs = [leaf(4, 16, device=device, dtype=torch.float32) for _ in range(2)]
    weight = leaf(16, device=device, dtype=torch.float32)
    got = torch.autograd.grad(torch.compile(step, fullgraph=True)(*inputs, weight), [*inputs, weight])
    for ours, theirs in zip(got, torch.autograd.grad(step(*inputs, weight), [*inputs, weight]), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_kernel_refuses_a_tensor_without_dimensions():
    with pytest.raises(ValueError, match="the input needs a dimension"):
        torch.ops.isthmus_cpu.rms_norm(torch.tensor(1.0), None, 1e-6)
