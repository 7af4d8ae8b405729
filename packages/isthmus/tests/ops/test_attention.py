"""Flash attention by every implementation against plain mathematics in float64, on CPU tensors and on the chip."""

import math

import pytest
import torch

from isthmus import ops
from isthmus.ops import philox
from isthmus.ops.attention import attend, packed_lengths
from tests.helpers.ops_checks import (
    DEVICES,
    against_float64,
    by_each,
    gradcheck,
    in_each_dtype,
    leaf,
    on_each_device,
    run,
)

# [batch, queries, keys, heads, key heads, features]
SHAPES = [
    (2, 5, 7, 2, 1, 8),
    (1, 70, 131, 2, 2, 19),
    (1, 1, 40, 4, 2, 33),
    (2, 9, 4, 2, 2, 16),
    (1, 1, 1, 1, 1, 1),
    (2, 0, 4, 2, 1, 8),
    (2, 3, 0, 2, 1, 8),
]


def plain(
    q, k, v, scale=None, left=None, right=None, softcap=0.0, slopes=None, bias=None, mask=None, keep=None
):
    """Attention that holds everything: [batch, tokens, heads, features]; ``keep`` multiplies the weights."""
    groups = q.shape[2] // k.shape[2]
    q, k, v = q.transpose(1, 2), *(each.transpose(1, 2).repeat_interleave(groups, 1) for each in (k, v))
    queries, keys = q.shape[2], k.shape[2]
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    distance = torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)
    if slopes is not None:
        scores = scores - slopes.reshape(-1, q.shape[1], 1, 1) * distance.abs()
    if bias is not None:
        scores = scores + bias
    hidden = torch.zeros_like(distance, dtype=torch.bool)
    if left is not None:
        hidden = hidden | (distance > left)
    if right is not None:
        hidden = hidden | (-distance > right)
    if mask is not None:
        hidden = hidden | mask
    blind = hidden.all(-1, keepdim=True)
    scores = scores.masked_fill(hidden & ~blind, -math.inf)
    weights = scores.softmax(-1).masked_fill(blind, 0) if keys else scores
    return ((weights if keep is None else weights * keep) @ v).transpose(1, 2)


def inputs(batch, queries, keys, heads, key_heads, size, **options):
    return [
        leaf(batch, queries, heads, size, **options),
        leaf(batch, keys, key_heads, size, **options),
        leaf(batch, keys, key_heads, size, **options),
    ]


@on_each_device
@by_each
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_in_float64(device, implementation, causal):
    q, k, v = inputs(2, 3, 4, 4, 2, 4, device=device)

    def call(q, k, v):
        return ops.flash_attn_func(q, k, v, causal=causal, softcap=1.5, window_size=(1, 1))

    gradcheck("attention", implementation, call, q, k, v)
    with ops.use("attention", implementation):
        assert ops.which("flash_attn_func", q, k, v).implementation == implementation


@on_each_device
@by_each
@in_each_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_against_float64(device, implementation, dtype, shape, causal):
    with ops.use("attention", implementation):
        against_float64(
            lambda q, k, v: ops.flash_attn_func(q, k, v, causal=causal),
            lambda q, k, v: plain(q, k, v, right=0 if causal else None),
            inputs(*shape, device=device, dtype=dtype),
        )


@by_each
@in_each_dtype
@pytest.mark.parametrize("window", [(3, 0), (0, 5), (-1, 2), (40, -1)])
def test_windows(implementation, dtype, window):
    left, right = (None if side < 0 else side for side in window)
    with ops.use("attention", implementation):
        against_float64(
            lambda q, k, v: ops.flash_attn_func(q, k, v, window_size=window, softmax_scale=0.3),
            lambda q, k, v: plain(q, k, v, 0.3, left, right),
            inputs(2, 150, 170, 2, 1, 24, dtype=dtype),
        )


@on_each_device
@by_each
@in_each_dtype
def test_softcap_and_slopes(device, implementation, dtype):
    slopes = torch.rand(2, 4, device=device)
    with ops.use("attention", implementation):
        against_float64(
            lambda q, k, v: ops.flash_attn_func(q, k, v, softcap=2.0, alibi_slopes=slopes, causal=True),
            lambda q, k, v: plain(q, k, v, right=0, softcap=2.0, slopes=slopes.cpu().double()),
            inputs(2, 33, 40, 4, 2, 16, device=device, dtype=dtype),
        )


@on_each_device
@by_each
@in_each_dtype
def test_a_bias_and_a_mask_with_fully_masked_rows(device, implementation, dtype):
    bias = torch.randn(1, 2, 1, 37, device=device)
    mask = torch.rand(2, 1, 21, 37, device=device) < 0.5
    mask[:, :, 4] = True
    q, k, v = inputs(2, 21, 37, 2, 2, 12, device=device, dtype=dtype)
    with ops.use("attention", implementation):
        against_float64(
            lambda q, k, v: attend(q, k, v, bias=bias, mask=mask)[0],
            lambda q, k, v: plain(q, k, v, bias=bias.cpu().double(), mask=mask.cpu()),
            [q, k, v],
        )
        out, lse = attend(q, k, v, mask=mask)
        assert not out[:, 4].any() and lse[:, :, 4].eq(-math.inf).all()
        grads = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
        assert not grads[0][:, 4].any() and all(each.isfinite().all() for each in grads)


def test_the_gradient_of_a_bias():
    q, k, v = inputs(2, 4, 5, 2, 1, 3)
    for shape in ((1, 2, 1, 5), (2, 1, 4, 5)):
        bias = leaf(*shape)
        assert torch.autograd.gradcheck(lambda q, k, v, b: attend(q, k, v, bias=b)[0], (q, k, v, bias))


LENGTHS = [([0, 4, 4, 9], [0, 6, 8, 11]), ([0, 70, 71], [0, 140, 141]), ([0, 3, 6], [0, 0, 2]), ([0], [0])]


@on_each_device
@by_each
@in_each_dtype
@pytest.mark.parametrize("ends", LENGTHS, ids=str)
def test_sequences_one_after_another(device, implementation, dtype, ends):
    ends_q, ends_k = ends
    tensors = inputs(1, ends_q[-1], ends_k[-1], 4, 2, 10, device=device, dtype=dtype)
    cu_q, cu_k = (torch.tensor(each, dtype=torch.int32, device=device) for each in ends)

    def reference(q, k, v):
        parts = [
            plain(q[None, a:b], k[None, c:d], v[None, c:d], right=0)[0]
            for a, b, c, d in zip(ends_q, ends_q[1:], ends_k, ends_k[1:], strict=False)
        ]
        return torch.cat([q[:0], *parts])

    with ops.use("attention", implementation):
        against_float64(
            lambda q, k, v: ops.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 70, 140, causal=True),
            reference,
            [each[0].detach().requires_grad_() for each in tensors],
        )


@by_each
def test_lengths_that_do_not_fit_are_refused(implementation):
    q, k, v = (each[0] for each in inputs(1, 6, 6, 2, 2, 4))
    good = torch.tensor([0, 2, 6], dtype=torch.int32)
    with ops.use("attention", implementation):
        with pytest.raises(ValueError, match="rise from 0 to the number of tokens, 6"):
            ops.flash_attn_varlen_func(q, k, v, good, good[:2], 4, 4)
        with pytest.raises(ValueError, match="has a sequence of 4 tokens, above the 3 given"):
            ops.flash_attn_varlen_func(q, k, v, good, good, 3, 4)


@on_each_device
@in_each_dtype
def test_dropout_is_one_mask_for_every_implementation_and_both_directions(device, dtype):
    q, k, v = inputs(2, 9, 70, 4, 2, 8, device=device, dtype=dtype)
    rng = philox.draw(q.device)
    numbers = torch.arange(8, device=device).view(2, 4)
    keep = philox.kept(rng, numbers, 9, 70, 0.3).cpu().double() / 0.7
    for implementation in ("cpu", "composite"):
        with ops.use("attention", implementation):
            against_float64(
                lambda q, k, v: attend(q, k, v, dropout_p=0.3, rng=rng)[0],
                lambda q, k, v: plain(q, k, v, keep=keep),
                [q, k, v],
            )


@on_each_device
def test_dropout_by_seed(device):
    q, k, v = inputs(1, 64, 64, 4, 4, 8, device=device, dtype=torch.float32)

    def dropped():
        _, _, weights = ops.flash_attn_func(q, k, v, 0.25, return_attn_probs=True)
        return weights < 0

    torch.manual_seed(3)
    first, second = dropped(), dropped()
    torch.manual_seed(3)
    assert torch.equal(first, dropped()) and not torch.equal(first, second)
    assert abs(first.float().mean().item() - 0.25) < 0.02
    assert not ops.flash_attn_func(q, k, v, 1.0).any()


def test_padding_of_queries_alone_is_refused():
    ends, padded = torch.tensor([0, 6, 11]), torch.tensor([0, 8, 16])
    with pytest.raises(ValueError, match="both queries and keys"):
        packed_lengths((ends, ends), (padded, None), (None, None), right=0)


def test_weights_and_sums_that_are_returned():
    q, k, v = inputs(2, 5, 7, 4, 2, 6)
    out, lse, weights = ops.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    torch.testing.assert_close((weights @ v.transpose(1, 2).repeat_interleave(2, 1)).transpose(1, 2), out)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5, dtype=torch.float64))
    scores = q.transpose(1, 2) @ k.transpose(1, 2).repeat_interleave(2, 1).transpose(-1, -2) / math.sqrt(6)
    torch.testing.assert_close(lse, scores.masked_fill(weights == 0, -math.inf).logsumexp(-1))
    assert not lse.requires_grad
    cu = torch.tensor([0, 2, 5])
    packed = ops.flash_attn_varlen_func(q[0], k[0, :5], v[0, :5], cu, cu, 3, 4, return_attn_probs=True)
    assert packed[1].shape == (4, 5) and packed[2].shape == (2, 4, 3, 4) and not packed[2][0, :, 2:].any()


def test_packed_forms():
    q, k, v = inputs(2, 6, 6, 4, 4, 8)
    cu = torch.tensor([0, 4, 6])
    expected = ops.flash_attn_func(q, k, v, causal=True)
    kv, qkv = torch.stack((k, v), 2), torch.stack((q, k, v), 2)
    assert torch.equal(ops.flash_attn_kvpacked_func(q, kv, causal=True), expected)
    assert torch.equal(ops.flash_attn_qkvpacked_func(qkv, causal=True), expected)
    packed = ops.flash_attn_varlen_func(q[0], k[0], v[0], cu, cu, 4, 4, causal=True)
    assert torch.equal(ops.flash_attn_varlen_kvpacked_func(q[0], kv[0], cu, cu, 4, 4, causal=True), packed)
    assert torch.equal(ops.flash_attn_varlen_qkvpacked_func(qkv[0], cu, 4, causal=True), packed)
    assert torch.equal(ops.FlashCrossAttention(causal=True)(q, kv), expected)
    assert torch.equal(ops.FlashCrossAttention(causal=True)(q[0], kv[0], None, cu, 4, cu, 4), packed)
    with pytest.raises(ValueError, match="packed sequences need cu_seqlens"):
        ops.FlashCrossAttention()(q[0], kv[0], cu_seqlens=cu)
    with pytest.raises(ValueError, match="kv has shape"):
        ops.flash_attn_kvpacked_func(q, qkv)


@by_each
@in_each_dtype
def test_strided_operands(implementation, dtype):
    wide = [leaf(2, 3, 40, 22, dtype=dtype).detach()[..., :11] for _ in range(3)]
    with ops.use("attention", implementation):
        against_float64(
            lambda q, k, v: ops.flash_attn_func(q, k, v, causal=True),
            lambda q, k, v: plain(q, k, v, right=0),
            [each.transpose(1, 2).requires_grad_() for each in wide],
        )
        expanded = [leaf(1, 5, 1, 8, dtype=dtype).detach().expand(2, 5, 2, 8) for _ in range(3)]
        against_float64(ops.flash_attn_func, plain, expanded)


@by_each
@in_each_dtype
def test_a_nan_is_not_lost(implementation, dtype):
    q, k, v = (each.detach() for each in inputs(1, 40, 40, 1, 1, 8, dtype=dtype))
    k[0, 20, 0, 3] = math.nan
    with ops.use("attention", implementation):
        out = ops.flash_attn_func(q, k, v, causal=True)
    assert out[0, 20:].isnan().all() and out[0, :20].isfinite().all()


def test_invalid_calls_are_refused():
    q, k, v = inputs(2, 4, 4, 4, 2, 8)
    refused = [
        (lambda: ops.flash_attn_func(q, k[:, :3], v), "key and value must match"),
        (lambda: ops.flash_attn_func(q[:, :, :3], k, v), "query heads must be a multiple of key heads"),
        (lambda: ops.flash_attn_func(q, k.float(), v), "must have one dtype"),
        (lambda: ops.flash_attn_func(q, k, v, 1.5), "dropout_p is 1.5"),
        (lambda: ops.flash_attn_func(q, k, v, alibi_slopes=leaf(4)), "alibi_slopes gets no gradient"),
        (lambda: attend(q, k, v, mask=torch.ones(2, 1, 3, 4, dtype=torch.bool)), "mask has shape"),
    ]
    for call, message in refused:
        with pytest.raises(ValueError, match=message):
            call()
    cu = torch.tensor([0, 4])
    with pytest.raises(ValueError, match="it must be 0 with block_table"):
        ops.flash_attn_varlen_func(q[0], k, v, cu, cu, 4, 4, dropout_p=0.1, block_table=cu)


@on_each_device
def test_autocast(device):
    q, k, v = inputs(1, 4, 4, 2, 2, 8, device=device, dtype=torch.float32)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert ops.flash_attn_func(q, k, v).dtype == torch.bfloat16


@pytest.mark.sampled(1)
@pytest.mark.parametrize("device", DEVICES)
def test_compiled_without_a_break(device):
    def step(q, k, v):
        return ops.flash_attn_func(q, k, v, causal=True, softcap=3.0).square().sum()

    q, k, v = inputs(2, 9, 11, 4, 2, 8, device=device, dtype=torch.float32)
    got = torch.autograd.grad(torch.compile(step, fullgraph=True)(q, k, v), (q, k, v))
    for ours, theirs in zip(got, torch.autograd.grad(step(q, k, v), (q, k, v)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_same_bits_twice():
    tensors = inputs(2, 130, 140, 4, 2, 32, dtype=torch.bfloat16)
    call = lambda q, k, v: ops.flash_attn_func(q, k, v, causal=True)  # noqa: E731
    first, second = run(call, tensors), run(call, tensors)
    assert all(torch.equal(a, b) for a, b in zip(first[0] + first[1], second[0] + second[1], strict=True))
