"""Linear layer and cross entropy in one, by every implementation, on CPU tensors and on the chip."""

import pytest
import torch

from isthmus import ops
from tests.helpers.cross_entropy import in_every_form, targets
from tests.helpers.cross_entropy import reference as cross_entropy
from tests.helpers.ops_checks import against_float64, by_each, gradcheck, in_each_dtype, leaf, on_each_device

NAME = "linear_cross_entropy"


def reference(hidden, weight, target, bias=None, chunk_size=None, **options):
    return cross_entropy(torch.nn.functional.linear(hidden, weight, bias), target, **options)


def inputs(rows, features, classes, device="cpu", dtype=torch.float64):
    hidden, weight = leaf(*rows, features, device=device, dtype=dtype), leaf(classes, features, scale=0.3)
    bias, target = leaf(classes, device=device, dtype=dtype), targets((*rows, classes), device)
    return hidden, weight.detach().to(dtype).to(device).requires_grad_(), target, bias


@on_each_device
@by_each
@in_every_form
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gradients_in_float64(device, implementation, options, reduction):
    hidden, weight, target, bias = inputs((2, 3), 4, 7, device)

    def function(h, w, b):
        return ops.linear_cross_entropy(h, w, target, b, reduction=reduction, chunk_size=4, **options) * 1.7

    gradcheck(NAME, implementation, function, hidden, weight, bias)
    with ops.use(NAME, implementation):
        assert ops.which(NAME, hidden, weight, target, bias).implementation == implementation


@on_each_device
@by_each
@in_each_dtype
@pytest.mark.parametrize("chunk_size", [1, 5, None])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_against_float64(device, implementation, dtype, chunk_size, reduction):
    given = inputs((3, 7), 33, 65, device, dtype)
    with ops.use(NAME, implementation):
        against_float64(
            lambda *tensors: ops.linear_cross_entropy(*tensors, chunk_size=chunk_size, reduction=reduction),
            lambda *tensors: reference(*tensors, reduction=reduction),
            given,
        )


@by_each
def test_the_gradient_of_the_loss_is_multiplied_in_at_every_backward(implementation):
    hidden, weight, target, bias = inputs((9,), 5, 11)
    with ops.use(NAME, implementation):
        loss = ops.linear_cross_entropy(hidden, weight, target, bias, chunk_size=4)
        for factor in (3.0, 1.0, 0.25):  # the first gives away what was made with the loss
            got = torch.autograd.grad(loss * factor, [hidden, weight, bias], retain_graph=True)
            expected = reference(hidden, weight, target, bias) * factor
            torch.testing.assert_close(got, torch.autograd.grad(expected, [hidden, weight, bias]))


def test_frozen_inputs_get_no_gradient_and_a_tied_weight_gets_both():
    hidden, weight, target, _ = inputs((6,), 5, 11)
    frozen = weight.detach()
    loss = ops.linear_cross_entropy(hidden, frozen, target)
    (got,) = torch.autograd.grad(loss, hidden)
    torch.testing.assert_close(got, torch.autograd.grad(reference(hidden, frozen, target), hidden)[0])

    def tied(function):
        return torch.autograd.grad(function(weight[:6], weight, target), weight)

    torch.testing.assert_close(tied(ops.linear_cross_entropy), tied(reference))


def extra_memory(function, *tensors):
    """Peak bytes of chip memory for a loss and its gradients beyond their inputs."""
    torch.chip.synchronize()
    torch.chip.reset_peak_memory_stats()
    before = torch.chip.memory_allocated()
    torch.autograd.grad(function(*tensors), tensors[:2])
    return torch.chip.max_memory_allocated() - before


@by_each
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_quarter_of_the_memory_and_less(implementation, reduction):
    hidden, weight, target, _ = inputs((512,), 16, 4000, "chip", torch.float32)

    def fused(hidden, weight, target):
        return ops.linear_cross_entropy(hidden, weight, target, chunk_size=64, reduction=reduction).sum()

    with ops.use(NAME, implementation):
        assert (
            extra_memory(fused, hidden, weight, target) < extra_memory(reference, hidden, weight, target) / 4
        )


def test_no_gradients_are_computed_without_need():
    hidden, weight, target, _ = inputs((6,), 5, 11)
    with torch.no_grad(), ops.registration.record_choices() as choices:
        loss = ops.linear_cross_entropy(hidden, weight, target)
    assert not loss.requires_grad
    assert len(choices) == 1
    torch.testing.assert_close(loss, reference(hidden, weight, target))


@by_each
def test_strided_inputs_and_none_at_all(implementation):
    hidden, weight = leaf(5, 14).detach()[:, ::2], leaf(7, 11).detach().t()
    target = targets((5, 11))
    with ops.use(NAME, implementation):
        given = [hidden.requires_grad_(), weight.requires_grad_(), target]
        against_float64(ops.linear_cross_entropy, reference, given)
        empty = leaf(0, 7)
        loss = ops.linear_cross_entropy(empty, weight, target[:0], reduction="sum")
        assert loss == 0
        assert not torch.autograd.grad(loss, weight)[0].any()


def test_the_part_of_the_squared_lse_and_the_module():
    hidden, weight, target, bias = inputs((6,), 5, 11)
    options = {"lse_square_scale": 0.1, "label_smoothing": 0.1, "softcap": 3.0}
    got = ops.linear_cross_entropy(hidden, weight, target, bias, return_z_loss=True, **options)
    logits = torch.nn.functional.linear(hidden, weight, bias)
    torch.testing.assert_close(got, ops.cross_entropy(logits, target, return_z_loss=True, **options))
    layer = ops.LinearCrossEntropyLoss(**options)
    torch.testing.assert_close(layer(hidden, weight, target, bias), got[0])
    with pytest.raises(TypeError, match="unknown options temperature"):
        ops.LinearCrossEntropyLoss(temperature=2)


def test_small_gradients_of_float16_outlive_the_scale_of_the_loss():
    hidden, weight, target, _ = inputs((2000,), 8, 50, dtype=torch.float16)
    scale = 2.0**16
    loss = ops.linear_cross_entropy(hidden, weight, target)
    (got,) = torch.autograd.grad(loss * scale, hidden)
    (expected,) = torch.autograd.grad(reference(hidden.double(), weight.double(), target) * scale, hidden)
    torch.testing.assert_close(got, expected, rtol=0.02, atol=expected.abs().max().item() * 3e-3)


@on_each_device
def test_autocast_multiplies_in_the_lower_dtype(device):
    hidden, weight, target, _ = inputs((6,), 5, 11, device, torch.float32)
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = ops.linear_cross_entropy(hidden, weight, target)
    loss.backward()
    lower = ops.linear_cross_entropy(hidden.bfloat16(), weight.bfloat16(), target)
    assert torch.equal(loss, lower)
    assert loss.dtype == weight.grad.dtype == torch.float32


def test_wrong_arguments_are_refused():
    hidden, weight, target, bias = inputs((6,), 5, 11)
    with pytest.raises(ValueError, match=r"hidden has shape \(6, 5\) and weight \(5, 11\)"):
        ops.linear_cross_entropy(hidden, weight.t(), target)
    with pytest.raises(ValueError, match=r"bias has shape \(5,\); it must be \(11,\)"):
        ops.linear_cross_entropy(hidden, weight, target, bias[:5])
    with pytest.raises(ValueError, match=r"are torch\.float64, torch\.float32; they must be one dtype"):
        ops.linear_cross_entropy(hidden, weight.float(), target)
    with pytest.raises(ValueError, match=r"the target \(5,\)"):
        ops.linear_cross_entropy(hidden, weight, target[:5])
    with pytest.raises(ValueError, match="chunk_size is 0"):
        ops.linear_cross_entropy(hidden, weight, target, chunk_size=0)
    with pytest.raises(IndexError, match=r"target 11 of row 0 is not in \[0, 11\)"):
        ops.linear_cross_entropy(hidden, weight, torch.full((6,), 11))
