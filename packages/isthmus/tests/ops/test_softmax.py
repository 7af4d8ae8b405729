"""Scaled masked softmax by every implementation, on CPU tensors and on the chip."""

import pytest
import torch

from isthmus import ops
from tests.helpers.ops_checks import against_float64, by_each, in_each_dtype, leaf, on_each_device

# Shapes of the scores; square, more keys than queries, more queries than keys, longer than a vector, empty.
SHAPES = [(2, 3, 5, 5), (2, 3, 33), (7, 4), (1, 3, 2, 1031), (2, 0, 7), (3, 5, 0), (1, 1)]


def reference(scores, mask=None, scale=1.0, causal=False):
    hidden = torch.zeros(scores.shape, dtype=torch.bool)
    if mask is not None:
        hidden = hidden | mask
    if causal:
        queries, keys = scores.shape[-2:]
        hidden = hidden | ~torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    out = (scores * scale).masked_fill(hidden, float("-inf")).softmax(-1)
    return out.masked_fill(hidden.all(-1, keepdim=True), 0)


def mask_for(shape, device):
    """[batch, 1, queries, keys] for four dimensions, with a row that is masked out altogether."""
    sizes = (shape[0], 1, *shape[2:]) if len(shape) == 4 else shape
    mask = torch.rand(sizes) < 0.4
    mask[..., :1, :] = True
    return mask.to(device)


@on_each_device
@by_each
@in_each_dtype
@pytest.mark.parametrize("shape", SHAPES)
def test_against_float64(device, implementation, dtype, shape):
    scores = leaf(*shape, device=device, dtype=dtype, scale=3)
    with ops.use("scaled_masked_softmax", implementation):
        against_float64(ops.scaled_masked_softmax, reference, [scores])
        against_float64(ops.scaled_masked_softmax, reference, [scores, None, 0.3, True])
        against_float64(ops.scaled_masked_softmax, reference, [scores, mask_for(shape, device), 0.3, False])


@by_each
@pytest.mark.parametrize("sizes", [(3, 1), (1, 5), (2, 1, 3, 1), (5,), (1, 4, 1, 5), ()])
def test_masks_broadcast(implementation, sizes):
    scores, mask = leaf(2, 4, 3, 5), torch.rand(sizes) < 0.5
    with ops.use("scaled_masked_softmax", implementation):
        against_float64(ops.scaled_masked_softmax, reference, [scores, mask, 2.0, True])


@by_each
def test_strided_scores_and_masks(implementation):
    scores = leaf(5, 2, 3, 7).detach().transpose(0, 3).requires_grad_()
    mask = (torch.rand(5, 1, 3, 7) < 0.4).transpose(0, 3)
    sliced = leaf(2, 3, 4, 20).detach()[..., 1::2].requires_grad_()
    with ops.use("scaled_masked_softmax", implementation):
        against_float64(ops.scaled_masked_softmax, reference, [scores, mask, 0.5, False])
        against_float64(ops.scaled_masked_softmax, reference, [sliced, None, 0.5, True])


@by_each
def test_masked_values_are_not_read(implementation):
    scores = torch.randn(3, 20)
    scores[:, 4] = float("nan")
    scores[0, 7] = float("inf")
    mask = torch.zeros(3, 20, dtype=torch.bool)
    mask[:, [4, 7]] = True
    with ops.use("scaled_masked_softmax", implementation):
        got = ops.scaled_masked_softmax(scores, mask)
        torch.testing.assert_close(got, reference(scores, mask))
        assert not ops.scaled_masked_softmax(torch.full((2, 3), float("-inf"))).any()
        assert ops.scaled_masked_softmax(scores).isnan().all()


def test_the_module():
    scores, mask = torch.randn(2, 3, 4, 4), torch.rand(2, 1, 4, 4) < 0.3
    layer = ops.ScaledMaskedSoftmax(0.25)
    assert torch.equal(layer(scores, mask), ops.scaled_masked_softmax(scores, mask, 0.25))
    causal = ops.ScaledMaskedSoftmax(causal=True)
    assert torch.equal(causal(scores), ops.scaled_masked_softmax(scores, causal=True))


def test_wrong_arguments_are_refused():
    scores = torch.randn(2, 4, 4)
    with pytest.raises(ValueError, match=r"the mask is torch.float32; it must be bool"):
        ops.scaled_masked_softmax(scores, torch.zeros(4, 4))
    with pytest.raises(ValueError, match=r"mask has shape \(3, 4\) and input \(2, 4, 4\)"):
        ops.scaled_masked_softmax(scores, torch.zeros(3, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"input has shape \(4,\)"):
        ops.scaled_masked_softmax(torch.randn(4))
