"""SwiGLU by every implementation, of two tensors and of a packed one, on CPU tensors and on the chip."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from isthmus import ops
from tests.helpers.ops_checks import against_float64, by_each, in_each_dtype, leaf, on_each_device

SHAPES = [(2, 3, 33), (1, 1), (5, 1031), (3, 9000), (0, 7), (3, 0)]


def reference(gate, up=None, dim=-1):
    gate, up = (gate, up) if up is not None else gate.chunk(2, dim)
    return F.silu(gate) * up


@on_each_device
@by_each
@in_each_dtype
@pytest.mark.parametrize("shape", SHAPES)
def test_against_float64(device, implementation, dtype, shape):
    gate = leaf(*shape, device=device, dtype=dtype, scale=4)
    up = leaf(*shape, device=device, dtype=dtype)
    packed = leaf(*shape[:-1], 2 * shape[-1], device=device, dtype=dtype, scale=4)
    with ops.use("swiglu", implementation):
        against_float64(ops.swiglu, reference, [gate, up])
        against_float64(ops.swiglu, reference, [packed])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_result_too_large_for_the_caches_is_that_of_its_parts(dtype):
    gate = torch.randn(4, (25 << 20) // (4 * dtype.itemsize)).to(dtype)
    up = gate.roll(1)

    def computed(gate, up):
        leaves = gate.requires_grad_(), up.requires_grad_()
        out = ops.swiglu(*leaves)
        return out, *torch.autograd.grad(out, leaves, up.detach())

    parts = [computed(*each) for each in zip(gate.chunk(4), up.chunk(4), strict=True)]
    for whole, part in zip(computed(gate, up), zip(*parts, strict=True), strict=True):
        assert torch.equal(whole, torch.cat(part))


@by_each
def test_views_and_strides(implementation):
    transposed = leaf(7, 2, 34).detach().transpose(0, 2).requires_grad_()
    sliced = leaf(5, 44).detach()[:, ::2].requires_grad_()
    broadcast = leaf(1, 8).detach().expand(5, 8).requires_grad_()
    with ops.use("swiglu", implementation):
        against_float64(ops.swiglu, reference, [transposed, leaf(34, 2, 7)])
        against_float64(ops.swiglu, reference, [sliced])
        against_float64(ops.swiglu, reference, [broadcast, leaf(5, 8)])
        for dim in (0, 1, 2):
            against_float64(lambda x, d=dim: ops.swiglu(x, dim=d), lambda x, d=dim: reference(x, None, d),
                            [leaf(4, 6, 10)])  # fmt: skip
            for order in itertools.permutations(range(3)):
                permuted = (
                    leaf(4, 6, 10).detach().permute(order).contiguous().permute([*map(order.index, range(3))])
                )
                packed = permuted.requires_grad_()
                against_float64(lambda x, d=dim: ops.swiglu(x, dim=d), lambda x, d=dim: reference(x, None, d),
                                [packed])  # fmt: skip
        against_float64(
            lambda x: ops.swiglu(*x.split([3, 3], 1)), lambda x: reference(x, None, 1), [leaf(5, 6, 4)]
        )


@by_each
@in_each_dtype
def test_far_from_zero(implementation, dtype):
    gate = torch.tensor([-60000.0, -200.0, -89.0, 89.0, 200.0, 60000.0], dtype=dtype, requires_grad=True)
    with ops.use("swiglu", implementation):
        out = ops.swiglu(gate, torch.ones_like(gate))
        out.sum().backward()
    assert out[:3].double().abs().max() < 1e-35 and torch.equal(out[3:], gate[3:])
    torch.testing.assert_close(gate.grad, torch.tensor([0, 0, 0, 1, 1, 1], dtype=dtype), rtol=0, atol=1e-30)


def test_the_module():
    layer, x = ops.SwiGLU(dim=1), torch.randn(3, 8, 5)
    torch.testing.assert_close(layer(x), reference(x, None, 1))
    torch.testing.assert_close(layer(x, x + 1), reference(x, x + 1))
    assert str(layer) == "SwiGLU(dim=1)"


@on_each_device
def test_autocast_takes_the_wider_dtype(device):
    gate, up = torch.randn(4, 8, device=device, dtype=torch.bfloat16), torch.randn(4, 8, device=device)
    with pytest.raises(ValueError, match="must have the same shape and dtype"):
        ops.swiglu(gate, up)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert ops.swiglu(gate, up).dtype == torch.float32


def test_an_odd_size_is_refused():
    with pytest.raises(ValueError, match="has 5 elements along dimension -1"):
        ops.swiglu(torch.randn(2, 5))
    with pytest.raises(ValueError, match="must have the same shape and dtype"):
        ops.swiglu(torch.randn(2, 5), torch.randn(5))


def test_the_kernel_itself_refuses_other_shapes():
    kernels, x = torch.ops.isthmus_cpu, torch.randn(4, 6)
    with pytest.raises(ValueError, match=r"tensors of shapes \[4, 6\] and \[4, 5\]"):
        kernels.swiglu(x, x[:, :5], -1)
    with pytest.raises(ValueError, match="has 7 elements along dimension -1"):
        kernels.swiglu(torch.randn(4, 7), None, -1)
    with pytest.raises(ValueError, match="swiglu_backward: tensors of shapes"):
        kernels.swiglu_backward(x, x, None, -1)
