"""Cross entropy by every implementation, on CPU tensors and on the chip."""

import pytest
import torch

from isthmus import ops
from tests.helpers.cross_entropy import in_every_form, reference, targets
from tests.helpers.ops_checks import against_float64, by_each, gradcheck, in_each_dtype, leaf, on_each_device

SHAPES = [(3, 2, 7), (5, 33), (1, 1), (4, 5003), (17,), (0, 7)]


@on_each_device
@by_each
@in_every_form
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradients_in_float64(device, implementation, options, reduction):
    logits, target = leaf(3, 2, 7, device=device), targets((3, 2, 7), device)

    def function(x):
        return ops.cross_entropy(x, target, reduction=reduction, return_lse=True, **options)

    gradcheck("cross_entropy", implementation, function, logits)
    with ops.use("cross_entropy", implementation):
        assert ops.which("cross_entropy", logits, target).implementation == implementation


@on_each_device
@by_each
@in_each_dtype
@in_every_form
@pytest.mark.parametrize("shape", SHAPES)
def test_against_float64(device, implementation, dtype, options, shape):
    logits, target = leaf(*shape, device=device, dtype=dtype, scale=3), targets(shape, device)
    with ops.use("cross_entropy", implementation):
        for reduction in ("none", "sum") if 0 in shape else ("none", "mean", "sum"):
            against_float64(
                lambda x, t, r=reduction: ops.cross_entropy(x, t, reduction=r, **options),
                lambda x, t, r=reduction: reference(x, t, r, **options),
                [logits, target],
                # of sums over five thousand classes, a few hundred wide
                factor=1 if reduction == "mean" else 4,
            )


@on_each_device
@pytest.mark.parametrize("implementation", ["cpu", "composite"])
def test_the_gradient_over_the_logits(device, implementation):
    target = targets((6, 9), device)
    with ops.use("cross_entropy", implementation), ops.use("cross_entropy_backward_", implementation):
        for strided in (False, True):
            logits = leaf(6, 18, device=device, dtype=torch.float32).detach()
            logits = logits[:, ::2] if strided else logits[:, :9]
            plain, over = logits.clone().requires_grad_(), logits.clone().requires_grad_()
            kept = over * 1
            ops.cross_entropy(plain, target, label_smoothing=0.1).backward()
            ops.cross_entropy(kept, target, label_smoothing=0.1, inplace_backward=True).backward()
            torch.testing.assert_close(over.grad, plain.grad)
            assert torch.equal(kept.detach(), over.grad)


def test_the_memory_reused_for_the_gradient_is_not_used_elsewhere():
    logits = torch.randn(4, 5, requires_grad=True) * 1
    square = logits.square().sum()  # made before the loss, so its gradient comes after it
    loss = ops.cross_entropy(logits, torch.arange(4), inplace_backward=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (loss + square).backward()


@by_each
def test_strided_logits_and_int32_targets(implementation):
    logits = leaf(4, 7, 12).detach()
    cut, turned = logits[:, :-1, ::2].requires_grad_(), logits.transpose(0, 2).requires_grad_()
    with ops.use("cross_entropy", implementation):
        against_float64(ops.cross_entropy, reference, [cut, targets(cut.shape).int()])
        against_float64(ops.cross_entropy, reference, [turned, targets(turned.shape)])


@by_each
def test_ignored_rows_may_contain_anything(implementation):
    logits = torch.randn(4, 9)
    logits[1] = float("nan")
    logits[2, 3:] = float("-inf")
    logits.requires_grad_()
    target = torch.tensor([1, -100, 2, 8])
    with ops.use("cross_entropy", implementation):
        loss = ops.cross_entropy(logits, target)
        (grad,) = torch.autograd.grad(loss, logits)
    expected = reference(logits, target)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(grad, torch.autograd.grad(expected, logits)[0].nan_to_num())


@by_each
def test_with_all_rows_ignored_the_mean_is_nan_and_the_sum_zero(implementation):
    logits, target = torch.randn(3, 5, requires_grad=True), torch.full((3,), -100)
    with ops.use("cross_entropy", implementation):
        assert ops.cross_entropy(logits, target).isnan()
        loss = ops.cross_entropy(logits, target, reduction="sum")
        assert loss == 0
        assert not torch.autograd.grad(loss, logits)[0].any()


def test_the_parts_of_the_loss():
    logits, target = torch.randn(6, 11), targets((6, 11))
    loss, z_loss, lse = ops.cross_entropy(
        logits, target, reduction="none", lse_square_scale=0.1, return_z_loss=True, return_lse=True
    )
    torch.testing.assert_close(lse, logits.logsumexp(-1))
    torch.testing.assert_close(z_loss, (0.1 * lse**2).masked_fill(target == -100, 0))
    torch.testing.assert_close(loss - z_loss, ops.cross_entropy(logits, target, reduction="none"))


def test_a_vocabulary_in_two_halves():
    logits, target = leaf(5, 14), torch.tensor([0, 6, 7, 13, 3])
    lses = [
        ops.cross_entropy(part, torch.zeros(5).long(), return_lse=True)[1] for part in logits.chunk(2, -1)
    ]
    whole = torch.stack(lses).logsumexp(0) - logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    ours, theirs = (torch.autograd.grad(each, logits) for each in (whole.mean(), reference(logits, target)))
    torch.testing.assert_close(ours, theirs)


def test_the_module():
    logits, target = torch.randn(6, 11), targets((6, 11), ignore_index=3)
    layer = ops.CrossEntropyLoss(ignore_index=3, label_smoothing=0.1)
    torch.testing.assert_close(
        layer(logits, target), reference(logits, target, ignore_index=3, label_smoothing=0.1)
    )


def test_half_logits_give_a_float32_loss_and_half_gradients():
    logits = leaf(4, 9, dtype=torch.bfloat16)
    loss = ops.cross_entropy(logits, targets((4, 9)))
    loss.backward()
    assert loss.dtype == torch.float32
    assert logits.grad.dtype == torch.bfloat16


def test_wrong_arguments_are_refused():
    logits = torch.randn(4, 9)
    with pytest.raises(ValueError, match=r"logits have shape \(4, 9\) and the target \(3,\)"):
        ops.cross_entropy(logits, torch.zeros(3).long())
    with pytest.raises(ValueError, match=r"the target is torch.float32; it must be an integer dtype"):
        ops.cross_entropy(logits, torch.zeros(4))
    with pytest.raises(ValueError, match="reduction is 'all'"):
        ops.cross_entropy(logits, torch.zeros(4).long(), reduction="all")
    with pytest.raises(IndexError, match=r"target 9 of row 1 is not in \[0, 9\) and not the ignored -100"):
        ops.cross_entropy(logits, torch.tensor([0, 9, 2, 1]))


@pytest.mark.sampled(1)
@on_each_device
def test_compiled_without_a_break(device):
    target = targets((6, 9), device)

    def step(logits):
        return ops.cross_entropy(logits, target, label_smoothing=0.1, inplace_backward=True)

    logits = leaf(6, 9, device=device, dtype=torch.float32)
    got = torch.autograd.grad(torch.compile(step, fullgraph=True, backend="aot_eager")(logits), logits)
    plain = logits.detach().cpu().requires_grad_()
    loss = reference(plain, target.cpu(), label_smoothing=0.1)
    torch.testing.assert_close(got[0].cpu(), torch.autograd.grad(loss, plain)[0])


@by_each
def test_huge_and_infinite_logits(implementation):
    logits = torch.tensor([[1e30, 0.0, -1e30], [float("inf"), 0.0, 1.0]])
    target = torch.tensor([1, 1])
    with ops.use("cross_entropy", implementation):
        loss, z_loss, lse = ops.cross_entropy(
            logits, target, reduction="none", logit_scale=0.7, return_z_loss=True, return_lse=True
        )
    expected = torch.nn.functional.cross_entropy(logits * 0.7, target, reduction="none")
    torch.testing.assert_close(loss[0], expected[0])
    torch.testing.assert_close(lse, (logits * 0.7).logsumexp(-1))
    assert loss[1].isnan() and expected[1].isnan()
    assert z_loss[0] == 0
