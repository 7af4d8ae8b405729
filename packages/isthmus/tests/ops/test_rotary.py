"""Rotary embedding by every implementation, in every form that frameworks call it in, on CPU tensors and the chip."""

import pytest
import torch

from isthmus import ops
from tests.helpers.ops_checks import against_float64, by_each, gradcheck, in_each_dtype, leaf, on_each_device

FORMS = [(layout, interleaved) for layout in ("bshd", "bhsd") for interleaved in (False, True)]
in_each_form = pytest.mark.parametrize(("layout", "interleaved"), FORMS)


def tables(rows, width, device="cpu", dtype=torch.float64, base=100.0):
    steps = base ** (-torch.arange(width, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(rows, dtype=torch.float64), steps)
    return angles.cos().to(dtype).to(device), angles.sin().to(dtype).to(device)


def reference(x, cos, sin, layout="bshd", interleaved=False):
    """Rotate by complex numbers: the pair (a, b) is a + ib, times exp(i angle)."""
    dim, head_dim = 2 * cos.size(-1), 2 if layout == "bshd" else 1
    turned, rest = x[..., :dim], x[..., dim:]
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    seq = 3 - head_dim
    factor = torch.complex(cos, sin)[..., : x.size(seq), :]
    product = torch.complex(a, b) * (factor[None] if factor.dim() == 2 else factor).unsqueeze(head_dim)
    pairs = (product.real, product.imag)
    done = torch.stack(pairs, -1).flatten(-2) if interleaved else torch.cat(pairs, -1)
    return torch.cat([done, rest], -1)


def shape(layout, b, s, h, d):
    return (b, s, h, d) if layout == "bshd" else (b, h, s, d)


@on_each_device
@by_each
@in_each_form
def test_gradients_in_float64(device, implementation, layout, interleaved):
    cos, sin = tables(7, 5, device)
    query = leaf(*shape(layout, 2, 3, 2, 12), device=device)
    key = leaf(*shape(layout, 2, 3, 1, 12), device=device)
    how = {"layout": layout, "interleaved": interleaved}
    gradcheck("rotary", implementation, lambda q, k: ops.rotary_qk(q, k, cos, sin, dim=10, **how), query, key)
    with ops.use("rotary", implementation):
        assert ops.which("rotary", query, cos, sin, dim=10, **how).implementation == implementation


@by_each
@pytest.mark.parametrize("interleaved", [False, True])
def test_tables_whose_halves_differ(implementation, interleaved):
    cos, sin = leaf(3, 10).detach(), leaf(3, 10).detach()
    first, second = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(5), slice(5, None))

    def expected(x):
        c, s, out = cos[:, None], sin[:, None], torch.empty_like(x)
        a, b = x[..., first], x[..., second]
        out[..., first] = a * c[..., first] - b * s[..., first]
        out[..., second] = b * c[..., second] + a * s[..., second]
        return out

    def ours(x):
        return ops.rotary(x, cos, sin, dim=10, interleaved=interleaved)

    gradcheck("rotary", implementation, ours, leaf(2, 3, 2, 10))
    with ops.use("rotary", implementation):
        against_float64(ours, expected, [leaf(2, 3, 2, 10)])


@on_each_device
@by_each
@in_each_dtype
@in_each_form
@pytest.mark.parametrize(
    ("sizes", "width"), [((2, 5, 3, 70), 35), ((1, 1, 1, 2), 1), ((2, 9, 2, 64), 16), ((2, 0, 3, 8), 4)]
)
def test_against_float64(device, implementation, dtype, layout, interleaved, sizes, width):
    cos, sin = tables(9, width)
    query = leaf(*shape(layout, *sizes), device=device, dtype=dtype)
    key = leaf(*shape(layout, *sizes[:2], 1, sizes[3]), device=device, dtype=dtype)
    on = cos.float().to(device), sin.float().to(device)
    wide = on[0].cpu().double(), on[1].cpu().double()
    how = {"layout": layout, "interleaved": interleaved}
    with ops.use("rotary", implementation):
        against_float64(
            lambda q, k: ops.rotary_qk(q, k, *on, dim=2 * width, **how),
            lambda q, k: (reference(q, *wide, **how), reference(k, *wide, **how)),
            [query, key],
        )


@by_each
@in_each_form
def test_the_inverse_is_the_rotation_by_minus_theta(implementation, layout, interleaved):
    (cos, sin), x = tables(6, 8), leaf(*shape(layout, 2, 6, 3, 20)).detach()
    how = {"layout": layout, "interleaved": interleaved, "dim": 16}
    with ops.use("rotary", implementation):
        turned = ops.rotary(x, cos, sin, **how)
        torch.testing.assert_close(ops.rotary(turned, cos, -sin, **how), x)
        assert torch.equal(
            ops.rotary(turned, cos, sin, conjugate=True, **how), ops.rotary(turned, cos, -sin, **how)
        )
        torch.testing.assert_close(turned[..., :16].norm(), x[..., :16].norm())
        assert torch.equal(turned[..., 16:], x[..., 16:])


@on_each_device
@by_each
def test_in_place_and_its_gradient(device, implementation):
    cos, sin = tables(5, 6, device)
    x = leaf(2, 5, 3, 12, device=device)
    with ops.use("rotary", implementation), ops.use("rotary_", implementation):
        base = x * 1
        out = ops.rotary(base, cos, sin, inplace=True)
        assert out is base
        expected = ops.rotary(x, cos, sin)
        assert torch.equal(out, expected)
        weight = torch.arange(out.numel(), device=device).view(out.shape).double()
        got = torch.autograd.grad((out * weight).sum(), x)
        assert torch.equal(got[0], torch.autograd.grad((expected * weight).sum(), x)[0])
        strided = torch.randn(12, 3, 5, 2, device=device).permute(3, 2, 1, 0)
        before = strided.clone()
        ops.rotary(strided, cos, sin, inplace=True)
        torch.testing.assert_close(strided, ops.rotary(before, cos, sin))


@by_each
@pytest.mark.parametrize("heads_first", [False, True])
def test_transposed_heads_keep_their_layout(implementation, heads_first):
    (cos, sin), x = tables(5, 6), leaf(2, 3, 5, 12).detach()
    x = x.transpose(1, 2) if heads_first else x
    layout = "bshd" if heads_first else "bhsd"
    x.requires_grad_()
    with ops.use("rotary", implementation):
        against_float64(
            lambda q: ops.rotary(q, cos, sin, layout=layout), lambda q: reference(q, cos, sin, layout), [x]
        )
        assert ops.rotary(x, cos, sin, layout=layout).stride() == x.stride()


@on_each_device
@by_each
@pytest.mark.parametrize("inplace", [False, True])
def test_varlen_as_flash_attn_calls_it(device, implementation, inplace):
    cos, sin = tables(9, 4, device)
    lengths, offset = [3, 0, 1, 5], torch.tensor([2, 0, 4, 1], device=device)
    cu_seqlens = torch.tensor([0, 3, 3, 4, 9], dtype=torch.int32, device=device)
    x = torch.randn(9, 2, 8, dtype=torch.float64, device=device)
    expected = [
        reference(part[None].cpu(), cos[o:].cpu(), sin[o:].cpu())[0]
        for part, o in zip(x.split(lengths), offset.tolist(), strict=True)
    ]
    with ops.use("rotary", implementation), ops.use("rotary_", implementation):
        out = ops.apply_rotary_emb(x, cos, sin, False, inplace, offset, cu_seqlens, 5)
    assert (out is x) == inplace
    torch.testing.assert_close(out.cpu(), torch.cat(expected))


@pytest.mark.parametrize("offsets", [2, torch.tensor([1, 3])])
def test_offsets_of_the_first_token(offsets):
    (cos, sin), x = tables(8, 4), torch.randn(2, 5, 3, 8, dtype=torch.float64)
    each = [offsets] * 2 if isinstance(offsets, int) else offsets.tolist()
    expected = torch.cat([reference(x[i : i + 1], cos[o:], sin[o:]) for i, o in enumerate(each)])
    torch.testing.assert_close(ops.apply_rotary_emb(x, cos, sin, seqlen_offsets=offsets), expected)


@on_each_device
@by_each
@pytest.mark.parametrize("own_tables", [False, True])
def test_packed_projections_in_place(device, implementation, own_tables):
    cos, sin = tables(5, 4, device)
    of_key = tables(5, 4, device, base=7.0) if own_tables else (cos, sin)
    given = of_key if own_tables else (None, None)
    qkv = leaf(2, 5, 3, 2, 8, device=device)
    with ops.use("rotary", implementation), ops.use("rotary_", implementation):
        base = qkv * 1
        out = ops.apply_rotary_emb_qkv_(base, cos, sin, *given)
        assert out is base
        q, k, v = qkv.unbind(2)
        expected = torch.stack([ops.rotary(q, cos, sin), ops.rotary(k, *of_key), v], 2)
        assert torch.equal(out, expected)
        weight = torch.arange(out.numel(), device=device).view(out.shape).double()
        got = torch.autograd.grad((out * weight).sum(), qkv)
        assert torch.equal(got[0], torch.autograd.grad((expected * weight).sum(), qkv)[0])
        grouped = qkv.detach().flatten(2, 3)[:, :, :5].clone()  # three heads of the query, one of the key
        ops.apply_rotary_emb_qkv_(grouped, cos, sin, *given, num_heads_q=3)
        q, k, v = qkv.detach().flatten(2, 3)[:, :, :5].split([3, 1, 1], 2)
        assert torch.equal(grouped, torch.cat([ops.rotary(q, cos, sin), ops.rotary(k, *of_key), v], 2))
        kv = qkv.detach()[:, :, 1:].clone()
        ops.apply_rotary_emb_kv_(kv, cos, sin)
        assert torch.equal(kv, torch.stack([ops.rotary(qkv[:, :, 1], cos, sin), qkv[:, :, 2]], 2))


@on_each_device
@in_each_dtype
@pytest.mark.parametrize("unsqueeze_dim", [1, 2])
def test_as_hugging_face_calls_it(device, dtype, unsqueeze_dim):
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    half = tables(5, 6, device, dtype)
    cos, sin = (torch.cat([each, each], -1).expand(2, 5, 12) for each in half)
    q, k = leaf(2, 5, 4, 12, device=device, dtype=dtype), leaf(2, 5, 2, 12, device=device, dtype=dtype)
    wide = [each.cpu().double() for each in (cos, sin)]

    def given(function, tables):
        def call(q, k):
            q, k = (q.transpose(1, 2), k.transpose(1, 2)) if unsqueeze_dim == 1 else (q, k)
            return function(q, k, *tables, unsqueeze_dim=unsqueeze_dim)

        return call

    against_float64(given(ops.apply_rotary_pos_emb, (cos, sin)), given(apply_rotary_pos_emb, wide), [q, k])


def test_the_module():
    layer = ops.RotaryEmbedding(8, base=100.0)
    q, k = torch.randn(2, 5, 3, 12), torch.randn(2, 5, 1, 12)
    cos, sin = tables(9, 4, dtype=torch.float32)
    for ours, x in zip(layer(q, k), (q, k), strict=True):
        torch.testing.assert_close(ours, reference(x, cos, sin))
    where = torch.tensor([[8, 0, 3, 3, 1]])
    shifted, _ = layer(q, k, where, max_position=9)
    torch.testing.assert_close(shifted, reference(q, cos[where], sin[where]))
    with pytest.raises(IndexError):
        layer(q, k, where + 1)
    assert not layer.state_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layout": "sbhd"}, "unknown layout 'sbhd'"),
        ({"dim": 6}, "tables of width 4 cannot rotate 6 of the 8"),
        ({"heads": 4}, "heads is 4; it must be from 0 to 3"),
        ({"cos": torch.ones(5, 4, requires_grad=True)}, "require a gradient"),
        ({"cos": torch.ones(4, 4)}, "cos has shape"),
        ({"query": torch.ones(5, 8)}, "must have 4 dimensions, or 3"),
    ],
)
def test_mismatched_arguments_are_refused(change, message):
    call = {"query": torch.ones(2, 5, 3, 8), "cos": torch.ones(5, 4), "sin": torch.ones(5, 4), **change}
    with pytest.raises(ValueError, match=message):
        ops.rotary(**call)


@by_each
def test_positions_and_rows_beyond_the_tables(implementation):
    x, (cos, sin) = torch.ones(1, 3, 1, 8), tables(5, 4)
    with ops.use("rotary", implementation):
        for bad in (5, -1):
            with pytest.raises(IndexError):
                ops.rotary(x, cos, sin, positions=torch.tensor([[0, bad, 1]]))
    with pytest.raises(ValueError, match="5 rows for 3 tokens from position 3"):
        ops.apply_rotary_emb(x, cos, sin, seqlen_offsets=3)
    with pytest.raises(ValueError, match="cu_seqlens needs max_seqlen"):
        ops.apply_rotary_emb(x[0], cos, sin, cu_seqlens=torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="key is"):
        ops.rotary_qk(x, x[:, :2], cos, sin)
    with pytest.raises(ValueError, match="tables of 2 rows for 3 tokens"):
        ops.rotary(x, cos[:2], sin[:2])
