"""The helpers of flash-attn's bert_padding, on CPU tensors and on the chip."""

import pytest
import torch

from isthmus import ops
from tests.helpers.ops_checks import leaf, on_each_device

LENGTHS = (3, 0, 5, 1)


def batch(device, dtype=torch.float64):
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    return leaf(4, 5, 2, 3, device=device, dtype=dtype), mask.to(device)


@on_each_device
@pytest.mark.parametrize("kind", [torch.bool, torch.int64])
def test_unpad_and_pad(device, kind):
    x, mask = batch(device)
    tokens, indices, bounds, longest, counted = ops.unpad_input(x, mask.to(kind))
    assert torch.equal(tokens, x[mask])
    assert bounds.tolist() == [0, 3, 3, 8, 9] and bounds.dtype == torch.int32
    assert longest == 5 and counted.tolist() == list(LENGTHS)
    back = ops.pad_input(tokens, indices, 4, 5)
    assert torch.equal(back, x * mask[..., None, None])
    assert torch.autograd.gradcheck(lambda x: ops.pad_input(ops.unpad_input(x, mask)[0], indices, 4, 5), [x])


def test_reserved_positions_stay_free():
    x, mask = batch("cpu")
    free = torch.zeros_like(mask)
    free[0, 3] = free[1, 0] = True
    tokens, _, bounds, longest, counted = ops.unpad_input(x, mask, free)
    assert torch.equal(tokens, x[mask | free])
    assert bounds.tolist() == [0, 4, 5, 10, 11] and longest == 5 and counted.tolist() == list(LENGTHS)


def test_rows_taken_twice_add_their_gradients():
    x, indices = leaf(4, 3), torch.tensor([2, 0, 2])
    assert torch.equal(ops.index_first_axis(x, indices), x[indices])
    assert torch.autograd.gradcheck(lambda x: ops.index_first_axis(x, indices), [x])
    assert torch.autograd.gradcheck(lambda x: ops.index_put_first_axis(x, indices.roll(1)[1:], 5), [x[:2]])


def test_no_token_at_all():
    x = torch.ones(2, 3, 4)
    tokens, indices, bounds, longest, _ = ops.unpad_input(x, torch.zeros(2, 3))
    assert tokens.shape == (0, 4) and bounds.tolist() == [0, 0, 0] and longest == 0
    assert not ops.pad_input(tokens, indices, 2, 3).any()


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"attention_mask has shape \(3, 2\)"):
        ops.unpad_input(torch.ones(2, 3, 4), torch.ones(3, 2))
