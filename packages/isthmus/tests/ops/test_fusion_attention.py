"""Attention in the forms of AscendSpeed against PyTorch's."""

import pytest
import torch
import torch.nn.functional as F

from isthmus import ops
from tests.helpers.ops_checks import leaf, on_each_device

BATCH, HEADS, QUERIES, KEYS, SIZE = 2, 4, 6, 9, 8
SCALE = 0.3


def in_layout(tensor, layout):
    """[batch, heads, tokens, features] in a layout."""
    if layout == "BNSD":
        return tensor
    swapped = tensor.transpose(1, 2)
    if layout == "BSND":
        return swapped
    flat = swapped.flatten(2)
    return flat if layout == "BSH" else flat.transpose(0, 1)


def operands(device, key_heads=HEADS):
    return [
        leaf(BATCH, heads, tokens, SIZE, device=device).detach()
        for heads, tokens in ((HEADS, QUERIES), (key_heads, KEYS), (key_heads, KEYS))
    ]


@on_each_device
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
@pytest.mark.parametrize("key_heads", [HEADS, 2])
def test_layouts_with_a_mask_that_is_true_where_hidden(device, layout, key_heads):
    q, k, v = operands(device, key_heads)
    hidden = torch.rand(BATCH, 1, QUERIES, KEYS, device=device) < 0.4
    hidden[..., 0] = False
    expected = F.scaled_dot_product_attention(q, k, v, ~hidden, scale=SCALE, enable_gqa=True)
    given = [in_layout(each, layout) for each in (q, k, v)]
    got = ops.FlashSelfAttention()(*given, HEADS, layout, atten_mask=hidden, scale=SCALE)
    torch.testing.assert_close(got, in_layout(expected, layout))
    numbers = hidden.to(torch.uint8)
    if layout != "BSND":
        got = ops.flash_attention(*given, numbers, scale=SCALE, head_num=HEADS, io_layout=layout)
        torch.testing.assert_close(got, in_layout(expected, layout))


@pytest.mark.parametrize("kind", [0, 1])
def test_pse_before_or_after_the_scale(kind):
    q, k, v = operands("cpu")
    pse = leaf(BATCH, HEADS, 1, KEYS)
    bias = pse * SCALE if kind == 1 else pse
    expected = F.scaled_dot_product_attention(q, k, v, bias.expand(-1, -1, QUERIES, -1), scale=SCALE)
    got = ops.fusion_attention(q, k, v, HEADS, "BNSD", pse, scale=SCALE, pse_type=kind)
    torch.testing.assert_close(got, expected)
    ours, theirs = (torch.autograd.grad(each.square().sum(), pse)[0] for each in (got, expected))
    torch.testing.assert_close(ours, theirs)
    if kind == 0:
        torch.testing.assert_close(ops.flash_attention(q, k, v, None, pse, SCALE, head_num=HEADS), expected)


ROW, COLUMN = torch.arange(QUERIES)[:, None], torch.arange(KEYS)[None]
END = ROW + KEYS - QUERIES


@pytest.mark.parametrize(
    ("mode", "seen"),
    [
        (0, (COLUMN >= ROW - 2) & (COLUMN <= ROW + 1)),
        (1, torch.ones(QUERIES, KEYS, dtype=torch.bool)),
        (2, COLUMN <= ROW),
        (3, COLUMN <= END),
        (4, (COLUMN >= END - 2) & (COLUMN <= END + 1)),
    ],
)
def test_sparse_modes(mode, seen):
    q, k, v = operands("cpu")
    mask = torch.zeros(QUERIES, KEYS, dtype=torch.bool)
    got = ops.fusion_attention(
        q, k, v, HEADS, "BNSD", atten_mask=mask, scale=SCALE, pre_tockens=2, next_tockens=1, sparse_mode=mode
    )
    torch.testing.assert_close(got, F.scaled_dot_product_attention(q, k, v, seen, scale=SCALE))


def test_sequences_by_cumulative_ends():
    q, k, v = (leaf(tokens, HEADS, SIZE).detach() for tokens in (7, 9, 9))
    got = ops.fusion_attention(
        q, k, v, HEADS, "TND", scale=SCALE, actual_seq_qlen=[3, 7], actual_seq_kvlen=[4, 9]
    )
    parts = [
        F.scaled_dot_product_attention(*(each.transpose(0, 1) for each in (q[a], k[b], v[b])), scale=SCALE)
        for a, b in ((slice(0, 3), slice(0, 4)), (slice(3, 7), slice(4, 9)))
    ]
    torch.testing.assert_close(got, torch.cat(parts, 1).transpose(0, 1))


def test_dropout_keeps_its_share():
    q, k, v = operands("cpu")
    torch.manual_seed(1)
    first = ops.fusion_attention(q, k, v, HEADS, "BNSD", keep_prob=0.5)
    torch.manual_seed(1)
    assert torch.equal(first, ops.fusion_attention(q, k, v, HEADS, "BNSD", keep_prob=0.5))
    assert not torch.equal(first, ops.fusion_attention(q, k, v, HEADS, "BNSD", keep_prob=0.5))


@pytest.mark.parametrize(
    "options",
    [
        {"q_scale": 2.0}, {"pre_tokens": 3}, {"next_tokens": 0}, {"precise_mode": 1}, {"groups": 2},
    ],
    ids=str,
)  # fmt: skip
def test_options_without_meaning_are_refused(options):
    q, k, v = operands("cpu")
    with pytest.raises(NotImplementedError, match=next(iter(options))):
        ops.flash_attention(q, k, v, head_num=HEADS, **options)


def test_mismatched_arguments_are_refused():
    q, k, v = operands("cpu")
    for options in ({"padding_mask": q}, {"sparse_mode": 5}, {"pse_type": 2}):
        with pytest.raises(NotImplementedError, match=next(iter(options))):
            ops.fusion_attention(q, k, v, HEADS, "BNSD", **options)
    with pytest.raises(ValueError, match="input_layout is 'NBSD'"):
        ops.fusion_attention(q, k, v, HEADS, "NBSD")
    with pytest.raises(ValueError, match="head_num is 3"):
        ops.fusion_attention(q, k, v, 3, "BNSD")
    with pytest.raises(ValueError, match="not of layout BSH"):
        ops.fusion_attention(q, k, v, HEADS, "BSH")
    with pytest.raises(ValueError, match="TND needs actual_seq_qlen"):
        ops.fusion_attention(*(each[0].transpose(0, 1) for each in (q, k, v)), HEADS, "TND")
    with pytest.raises(ValueError, match="are for layout TND"):
        ops.fusion_attention(q, k, v, HEADS, "BNSD", actual_seq_qlen=[1])
