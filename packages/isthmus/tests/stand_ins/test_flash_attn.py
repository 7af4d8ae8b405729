"""flash-attn's modules under ``--provide flash_attn``: rotary embedding, MHA, and FlashAttention 3's functions."""

import importlib
import sys
from types import SimpleNamespace

import pytest
import torch

from isthmus.stand_ins import provide


@pytest.fixture(scope="module", autouse=True)
def on_the_path():
    """Put the stand-in on the module search path."""
    before = list(sys.path)
    sys.path[:0] = provide.folders("flash_attn")
    yield
    sys.path[:] = before
    for name in [each for each in sys.modules if each.partition(".")[0].startswith("flash_attn")]:
        del sys.modules[name]


def load(name):
    return importlib.import_module(name)


def turned(x, dim, interleaved, offset=0, base=10000.0, scale=None):
    """Rotate [batch, seq, heads, size] in float64, by complex numbers."""
    x = x.double().cpu()
    positions = torch.arange(x.shape[1], dtype=torch.float64) + offset
    angles = torch.outer(positions, base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim))
    factors = torch.polar(torch.ones_like(angles) if scale is None else scale, angles)[:, None]
    part = x[..., :dim]
    pairs = part.unflatten(-1, (-1, 2)) if interleaved else torch.stack(part.chunk(2, -1), -1)
    found = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * factors)
    flat = found.flatten(-2) if interleaved else torch.cat(found.unbind(-1), -1)
    return torch.cat((flat, x[..., dim:]), -1)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("scale_base", [None, 512.0])
def test_rotary_embedding(interleaved, scale_base):
    rotary = load("flash_attn.layers.rotary")
    layer = rotary.RotaryEmbedding(6, 1000.0, interleaved, scale_base).to("chip")
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(2, 5, 3, 2, 8, generator=generator)
    scale = None
    if scale_base:
        basis = (torch.arange(0, 6, 2, dtype=torch.float64) + 2.4) / 8.4
        scale = basis ** ((torch.arange(5, dtype=torch.float64) - 2) / scale_base).unsqueeze(1)
    source = qkv.to("chip").requires_grad_()
    found = layer(source * 1)
    expected = qkv.double().requires_grad_()
    wanted = torch.stack(
        (turned(expected[:, :, 0], 6, interleaved, 0, 1000.0, scale),
         turned(expected[:, :, 1], 6, interleaved, 0, 1000.0, None if scale is None else 1 / scale),
         expected[:, :, 2]), 2,
    )  # fmt: skip
    torch.testing.assert_close(found.double().cpu(), wanted, rtol=1e-4, atol=1e-5)
    grad = torch.randn(qkv.shape, generator=generator)
    found.backward(grad.to("chip"))
    wanted.backward(grad.double())
    torch.testing.assert_close(source.grad.double().cpu(), expected.grad, rtol=1e-4, atol=1e-5)
    if scale_base is None:
        q, kv = layer(qkv[:, :, 0].to("chip"), qkv[:, :, 1:].to("chip"), seqlen_offset=3)
        torch.testing.assert_close(
            q.double().cpu(), turned(qkv[:, :, 0], 6, interleaved, 3, 1000.0), rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(
            kv[:, :, 0].double().cpu(), turned(qkv[:, :, 1], 6, interleaved, 3, 1000.0), rtol=1e-4, atol=1e-5
        )
        offsets = torch.tensor([2, 4], device="chip")
        moved = layer(qkv.to("chip"), seqlen_offset=offsets, max_seqlen=9)
        torch.testing.assert_close(
            moved[1:, :, 0].double().cpu(),
            turned(qkv[1:, :, 0], 6, interleaved, 4, 1000.0),
            rtol=1e-4,
            atol=1e-5,
        )
        with pytest.raises(ValueError, match="needs max_seqlen"):
            rotary.RotaryEmbedding(6)(qkv, seqlen_offset=offsets.cpu())


def test_rotary_functions_without_a_kernel():
    rotary, triton = load("flash_attn.layers.rotary"), load("flash_attn.ops.triton.rotary")
    x = torch.randn(2, 5, 3, 8)
    angles = torch.outer(torch.arange(5.0), torch.tensor([1.0, 0.1, 0.01]))
    for interleaved in (False, True):
        expected = rotary.apply_rotary_emb_torch(x, angles.cos(), angles.sin(), interleaved)
        forward = triton.apply_rotary(x, angles.cos(), angles.sin(), interleaved=interleaved)
        torch.testing.assert_close(forward, expected)
        torch.testing.assert_close(
            rotary.apply_rotary_emb(x, angles.cos(), angles.sin(), interleaved), expected
        )
        back = triton.apply_rotary(
            forward, angles.cos(), angles.sin(), interleaved=interleaved, conjugate=True
        )
        torch.testing.assert_close(back, x)


def attended(q, k, v, hidden=None, bias=None):
    """Attention of [batch, tokens, heads, features] in float64, with repeated key heads."""
    k, v = (each.repeat_interleave(q.shape[2] // each.shape[2], 2) for each in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    scores = scores if bias is None else scores + bias
    scores = scores if hidden is None else scores.masked_fill(hidden, -torch.inf)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1).nan_to_num(), v)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_heads_kv": 2, "rotary_emb_dim": 4},
        {"rotary_emb_dim": 4, "use_flash_attn": True, "return_residual": True},
        {"use_flash_attn": True, "use_alibi": True, "window_size": (2, -1)},
        pytest.param({"checkpointing": True, "num_heads_kv": 1}, marks=pytest.mark.full),
        {"cross_attn": True, "num_heads_kv": 1},
    ],
    ids=lambda options: " ".join(options) or "plain",
)
def test_mha(options):
    torch.manual_seed(0)
    mha, causal = load("flash_attn.modules.mha"), not options.get("cross_attn")
    layer = mha.MHA(24, 4, causal=causal, **options).to("chip")
    x, other = torch.randn(2, 7, 24), torch.randn(2, 9, 24)
    x_chip = x.to("chip").requires_grad_()
    out = layer(x_chip, other.to("chip")) if options.get("cross_attn") else layer(x_chip)
    if options.get("return_residual"):
        out, residual = out
        assert residual is x_chip
    wide = mha.MHA(24, 4, causal=causal, **options).double()
    wide.load_state_dict({name: each.cpu() for name, each in layer.state_dict().items()})
    source, heads = x.double().requires_grad_(), options.get("num_heads_kv", 4)
    if options.get("cross_attn"):
        q, kv = wide.Wq(source), wide.Wkv(other.double())
    else:
        q, kv = wide.Wqkv(source).split([24, 12 * heads], -1)
    q, (k, v) = q.view(2, 7, 4, 6), kv.view(2, -1, 2, heads, 6).unbind(2)
    if options.get("rotary_emb_dim"):
        q, k = (turned(each, 4, False) for each in (q, k))
    row, column = torch.arange(7).unsqueeze(1), torch.arange(k.shape[1])
    hidden = (column > row) if causal else None
    bias = None
    if options.get("use_alibi"):
        slopes = torch.tensor([2.0 ** (-2 * i) for i in range(1, 5)], dtype=torch.float64)
        bias, hidden = -slopes[:, None, None] * (row - column).abs(), hidden | (column < row - 2)
    expected = wide.out_proj(attended(q, k, v, hidden, bias).flatten(-2))
    torch.testing.assert_close(out.double().cpu(), expected, rtol=1e-4, atol=1e-5)
    grad = torch.randn_like(expected)
    out.backward(grad.to(out))
    expected.backward(grad)
    torch.testing.assert_close(x_chip.grad.double().cpu(), source.grad, rtol=1e-4, atol=1e-5)
    for a, b in zip(layer.parameters(), wide.parameters(), strict=True):
        torch.testing.assert_close(a.grad.double().cpu(), b.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("use_flash_attn", [False, True])
@pytest.mark.parametrize("heads", [2, 4])
def test_mha_generates_what_it_computes_at_once(use_flash_attn, heads):
    torch.manual_seed(0)
    mha = load("flash_attn.modules.mha")
    layer = mha.MHA(
        24, 4, heads, causal=True, layer_idx=0, rotary_emb_dim=4, use_flash_attn=use_flash_attn
    ).to("chip")
    x = torch.randn(2, 6, 24, device="chip")
    state = SimpleNamespace(
        seqlen_offset=0, lengths_per_sample=None, max_seqlen=8, max_batch_size=2, batch_size_offset=0,
        key_value_memory_dict={},
    )  # fmt: skip
    with torch.no_grad():
        found = [layer(x[:, :4], inference_params=state)]
        for state.seqlen_offset in (4, 5):
            found.append(layer(x[:, state.seqlen_offset : state.seqlen_offset + 1], inference_params=state))
        torch.testing.assert_close(torch.cat(found, 1), layer(x))


def test_mha_with_masks_and_packed_sequences():
    torch.manual_seed(0)
    mha = load("flash_attn.modules.mha")
    masked = mha.MHA(24, 4, causal=True).to("chip")
    packed = mha.MHA(24, 4, causal=True, use_flash_attn=True).to("chip")
    packed.load_state_dict(masked.state_dict())
    x = torch.randn(2, 5, 24, device="chip")
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2], device="chip")
    starts = torch.tensor([0, 5, 8], dtype=torch.int32, device="chip")
    expected = packed(x[mask], cu_seqlens=starts, max_seqlen=5)
    torch.testing.assert_close(masked(x, key_padding_mask=mask)[mask], expected)
    cross = mha.CrossAttention(causal=True).to("chip")
    q, kv = torch.randn(2, 2, 4, 6), torch.randn(2, 5, 2, 4, 6)
    found = cross(q.to("chip"), kv.to("chip"), key_padding_mask=mask).cpu()
    for i, keys in enumerate((5, 3)):
        hidden = torch.arange(keys) > torch.arange(2).unsqueeze(1) + keys - 2
        wanted = attended(q[i : i + 1], *kv[i : i + 1, :keys].unbind(2), hidden)
        torch.testing.assert_close(found[i : i + 1], wanted)
    assert mha.get_alibi_slopes(6) == pytest.approx([2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])


def test_what_mha_refuses():
    mha = load("flash_attn.modules.mha").MHA
    for options, error, said in (
        ({"dwconv": True}, NotImplementedError, "dwconv=True is not supported"),
        ({"use_alibi": True}, ValueError, "need use_flash_attn=True"),
        ({"num_heads_kv": 3}, ValueError, "must be a multiple"),
        ({"cross_attn": True, "rotary_emb_dim": 2}, ValueError, "for self-attention"),
    ):
        with pytest.raises(error, match=said):
            mha(24, 4, **options)
    x = torch.randn(5, 24)
    with pytest.raises(ValueError, match="cu_seqlens needs"):
        mha(24, 4)(x, cu_seqlens=torch.tensor([0, 5]), max_seqlen=5)
    with pytest.raises(ValueError, match="key_padding_mask needs"):
        mha(24, 4, use_flash_attn=True)(x, key_padding_mask=torch.ones(1, 5))


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_3(causal):
    module = load("flash_attn_interface")
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(2, 5, heads, 6, generator=generator).to("chip").requires_grad_() for heads in (4, 2, 2)
    )
    wide = [each.detach().double().cpu().requires_grad_() for each in (q, k, v)]
    hidden = torch.arange(5) > torch.arange(5).unsqueeze(1) if causal else None
    out, lse = module.flash_attn_func(q, k, v, causal=causal, return_attn_probs=True)
    expected = attended(*wide, hidden)
    assert lse.shape == (2, 4, 5)
    torch.testing.assert_close(out.double().cpu(), expected, rtol=1e-4, atol=1e-5)
    grad = torch.randn(out.shape, generator=generator)
    found = torch.autograd.grad(out, (q, k, v), grad.to("chip"))
    for a, b in zip(found, torch.autograd.grad(expected, wide, grad.double()), strict=True):
        torch.testing.assert_close(a.double().cpu(), b, rtol=1e-4, atol=1e-5)
    starts = torch.tensor([0, 5, 10], dtype=torch.int32, device="chip")
    flat = [each.flatten(0, 1) for each in (q, k, v)]
    packed = module.flash_attn_varlen_func(*flat, starts, starts, 5, 5, causal=causal)
    torch.testing.assert_close(packed.view(out.shape), out)
    both = torch.cat((q, k, v), 2)
    torch.testing.assert_close(module.flash_attn_qkvpacked_func(both, None, causal, num_heads_q=4), out)
    with torch.no_grad():
        caches = [torch.zeros(2, 8, 2, 6, device="chip") for _ in range(2)]
        decoded = module.flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=0, causal=causal)
    torch.testing.assert_close(decoded, out)


@pytest.mark.parametrize("name", ["qv", "k_descale", "attention_chunk"])
def test_what_flash_attention_3_refuses(name):
    module, q = load("flash_attn_interface"), torch.randn(1, 3, 2, 4)
    with pytest.raises(NotImplementedError, match=f"flash_attn_func: {name} is not supported"):
        module.flash_attn_func(q, q, q, **{name: 2 if name == "attention_chunk" else q})
