"""The unpad operators by every implementation: sequences of every length, none, one token, and a whole attention."""

import pytest
import torch

from isthmus import ops
from tests.helpers.ops_checks import against_float64, by_each, gradcheck, in_each_dtype, leaf, on_each_device

LENGTHS = [([5, 0, 1, 3], 7), ([1], 1), ([4, 4], 4), ([0, 0], 2), ([33, 17], 40)]
in_each_batch = pytest.mark.parametrize(("lengths", "most"), LENGTHS)


def kept(lengths, most):
    return torch.arange(most) < torch.tensor(lengths)[:, None]


def blocks(flat, lengths, heads):
    return [
        part.view(heads, s, s)
        for part, s in zip(flat.split([heads * s * s for s in lengths]), lengths, strict=True)
    ]


@on_each_device
@by_each
@in_each_dtype
@in_each_batch
def test_unpad_and_pad(device, implementation, dtype, lengths, most):
    x = leaf(len(lengths), most, 19, device=device, dtype=dtype)
    tokens = leaf(sum(lengths), 19, device=device, dtype=dtype)
    inside = kept(lengths, most)

    def padded(x):
        return torch.zeros(len(lengths), most, 19, dtype=x.dtype).masked_scatter(inside[..., None], x)

    with ops.use("unpad_seqlen", implementation), ops.use("pad_seqlen", implementation):
        assert ops.which("unpad_seqlen", x, lengths).implementation == implementation
        against_float64(lambda x: ops.unpad_seqlen(x, lengths, most), lambda x: x[inside], [x])
        against_float64(lambda x: ops.pad_seqlen(x, lengths, most), padded, [tokens])
        both = ops.pad_seqlen(ops.unpad_seqlen(x, lengths), lengths, most)
        assert torch.equal(both.cpu(), x.detach().cpu() * inside[..., None])  # pad after unpad is masking


@by_each
def test_integers_and_strides(implementation):
    x = torch.arange(2 * 3 * 4).view(4, 3, 2).permute(2, 1, 0)
    with ops.use("unpad_seqlen", implementation), ops.use("pad_seqlen", implementation):
        tokens = ops.unpad_seqlen(x, [2, 1])
        assert torch.equal(tokens, torch.cat([x[0, :2], x[1, :1]]))
        assert torch.equal(ops.pad_seqlen(tokens, [2, 1], 3), x * kept([2, 1], 3)[..., None])


@on_each_device
@by_each
@in_each_batch
def test_the_mask(device, implementation, lengths, most):
    mask = torch.rand(len(lengths), 1, most, most).to(device) > 0.4
    with ops.use("unpad_gen_attention_mask", implementation):
        for given in (mask, mask.half()):
            flat = ops.unpad_gen_attention_mask(given, lengths, 3)
            assert flat.dtype == torch.bool and flat.numel() == 3 * sum(s * s for s in lengths)
            for i, block in enumerate(blocks(flat.cpu(), lengths, 3)):
                s = lengths[i]
                assert torch.equal(block, mask.cpu()[i, :, :s, :s].expand(3, s, s))


@on_each_device
@by_each
@in_each_dtype
@in_each_batch
def test_softmax(device, implementation, dtype, lengths, most):
    def reference(x):
        return torch.cat([block.softmax(-1).flatten() for block in blocks(x, lengths, 3)])

    x = leaf(3 * sum(s * s for s in lengths), device=device, dtype=dtype, scale=3)
    with ops.use("unpad_softmax", implementation):
        against_float64(lambda x: ops.unpad_softmax(x, lengths, 3), reference, [x])


@by_each
def test_softmax_of_non_finite_values(implementation):
    inf, nan = float("inf"), float("nan")
    rows = torch.tensor([[1.0, -inf, 2.0], [-1e4, -1e4, -1e4], [0.5, nan, -inf]])
    with ops.use("unpad_softmax", implementation):
        got = ops.unpad_softmax(rows.flatten(), [3], 1).view(3, 3)
    torch.testing.assert_close(got, rows.softmax(-1), equal_nan=True)


@on_each_device
@by_each
@in_each_dtype
def test_rope(device, implementation, dtype):
    lengths = [5, 0, 1, 3]
    angles = torch.outer(torch.arange(5.0), torch.tensor([1.0, 0.1, 0.01]))
    cos, sin = (torch.cat([each, each], -1) for each in (angles.cos(), angles.sin()))

    def reference(q, k):
        def turned(x):
            parts = x.view(9, -1, 6).split(lengths)
            return torch.cat([
                part * cos[: len(part), None].double()
                + torch.cat([-part[..., 3:], part[..., :3]], -1) * sin[: len(part), None].double()
                for part in parts
            ]).flatten(1)  # fmt: skip

        return turned(q), turned(k)

    tables = cos.to(device), sin.to(device)
    inputs = [leaf(9, 24, device=device, dtype=dtype), leaf(9, 12, device=device, dtype=dtype)]
    with ops.use("rotary", implementation):
        against_float64(lambda q, k: ops.unpad_rope(q, k, *tables, lengths), reference, inputs)


def layouts(lengths, heads, d):
    """Sizes and places of scores = q k^T, and of context = p v."""
    b, hidden, squares = len(lengths), heads * d, [s * s for s in lengths]
    wide, flat = [hidden] * b, [d] * b
    scores = (lengths, flat, lengths, wide, wide, lengths, flat, flat, squares)
    context = (lengths, lengths, flat, lengths, wide, wide, squares, flat, flat)
    return scores, context


@on_each_device
@in_each_dtype
def test_a_whole_attention(device, dtype):
    lengths, heads, d = [5, 0, 1, 3], 2, 4
    scores, context = layouts(lengths, heads, d)
    mask = torch.ones(4, 1, 5, 5, dtype=torch.bool).triu(1)
    flat = ops.unpad_gen_attention_mask(mask.to(device), lengths, heads)

    def ours(q, k, v):
        s = ops.unpad_strided_batch_matmul(q, k, False, True, *scores, 4, heads)
        p = ops.unpad_softmax(s.masked_fill(flat.to(s.device), -10000) * d**-0.5, lengths, heads)
        out = ops.unpad_strided_batch_matmul(p, v, False, False, *context, 4, heads)
        return out.view(-1, heads * d)

    def reference(q, k, v):
        parts = [
            torch.nn.functional.scaled_dot_product_attention(
                *(x.view(-1, heads, d).transpose(0, 1) for x in each), is_causal=True
            ).transpose(0, 1)
            for each in zip(*(x.split(lengths) for x in (q, k, v)), strict=True)
        ]
        return torch.cat(parts).flatten(1)

    against_float64(ours, reference, [leaf(9, 8, device=device, dtype=dtype) for _ in range(3)], factor=3)


@on_each_device
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_gradients_of_products_in_any_layout(device, trans_a, trans_b):
    m, k, n, heads = [2, 0, 1], [3, 2, 1], [1, 2, 4], 2

    def place(rows, columns, side_by_side):
        pitch = [heads * c if side_by_side else c for c in columns]
        return pitch, list(columns) if side_by_side else [r * c for r, c in zip(rows, columns, strict=True)]

    lda, stride_a = place(*((k, m) if trans_a else (m, k)), trans_a)
    ldb, stride_b = place(*((n, k) if trans_b else (k, n)), not trans_b)
    ldc, stride_c = place(m, n, trans_b)
    sizes = (m, k, n, lda, ldb, ldc, stride_a, stride_b, stride_c)

    def product(a, b):
        return ops.unpad_strided_batch_matmul(a, b, trans_a, trans_b, *sizes, 3, heads)

    a = leaf(2 * sum(x * y for x, y in zip(m, k, strict=True)), device=device)
    b = leaf(2 * sum(x * y for x, y in zip(k, n, strict=True)), device=device)
    gradcheck("unpad_strided_batch_matmul", "composite", product, a, b)


def test_mismatched_arguments_are_refused():
    with pytest.raises(
        ValueError, match=r"seq_len is \[3, 5\]; it must have at least one length, each from 0 to 4"
    ):
        ops.unpad_seqlen(torch.ones(2, 4, 3), [3, 5], 4)
    with pytest.raises(ValueError, match="lengths add up to 7"):
        ops.pad_seqlen(torch.ones(6, 3), [3, 4], 4)
    with pytest.raises(ValueError, match="for 1 sequences"):
        ops.unpad_gen_attention_mask(torch.ones(2, 1, 4, 4), [3], 1)
    with pytest.raises(ValueError, match="2 heads and these lengths need 26 scores"):
        ops.unpad_softmax(torch.ones(25), [3, 2], 2)
    with pytest.raises(ValueError, match=r"query has shape \(5, 8\); it must be \[4, heads \* 4\]"):
        ops.unpad_rope(torch.ones(5, 8), torch.ones(5, 8), torch.ones(4, 4), torch.ones(4, 4), [3, 1])
    scores, _ = layouts([3, 1], 2, 4)
    q = torch.ones(4, 8)
    with pytest.raises(ValueError, match="a has 24 elements; its matrices have 32"):
        ops.unpad_strided_batch_matmul(q[:3], q, False, True, *scores, 2, 2)
    with pytest.raises(ValueError, match="it must be 3 numbers"):
        ops.unpad_strided_batch_matmul(q, q, False, True, *scores, 3, 2)
    overlapping = (*scores[:8], [0, 0])
    with pytest.raises(ValueError, match="matrices of C for sequence 0 are 3 x 3"):
        ops.unpad_strided_batch_matmul(q, q, False, True, *overlapping, 2, 2)
