"""xFormers under ``isthmus run``: attention, biases and blocks, by the stand-in and in an installed xFormers."""

import contextlib
import importlib
import sys
from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F

from isthmus.stand_ins import provide
from tests.helpers.children import output

HAS_REAL = find_spec("xformers") is not None


@pytest.fixture(scope="module", autouse=True)
def on_the_path():
    """Put the stand-in on the module search path."""
    before = list(sys.path)
    with contextlib.suppress(ValueError):  # the real package is installed: the tests below take its biases
        sys.path[:0] = provide.folders("xformers")
    yield
    sys.path[:] = before
    for name in [each for each in sys.modules if each.partition(".")[0] == "xformers"]:
        del sys.modules[name]


@pytest.fixture
def ops():
    if HAS_REAL:
        pytest.skip("the real xformers is installed")
    return importlib.import_module("xformers.ops")


@pytest.fixture
def masks(ops):
    return importlib.import_module("xformers.ops.fmha.attn_bias")


def tensors(*shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(len(shapes))
    made = (torch.randn(*each, generator=generator).to(dtype).to("chip") for each in shapes)
    return [each.requires_grad_() for each in made]


def reference(q, k, v, bias=None, scale=None):
    """Attention of [batch, tokens, heads, features] in float64."""
    q, k, v = (each.double().cpu().transpose(1, 2) for each in (q, k, v))
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    weights = (scores if bias is None else scores + bias.double().cpu()).softmax(-1)
    return (weights.nan_to_num() @ v).transpose(1, 2)


def agree(got, expected, inputs, tolerance=1e-4):
    """Compare a result and the gradients of its inputs."""
    grad = torch.linspace(-1, 1, got.numel()).view(got.shape)
    found = torch.autograd.grad(got, inputs, grad.to(got))
    wanted = torch.autograd.grad(expected, inputs, grad.to(expected))
    for a, b in zip((got, *found), (expected, *wanted), strict=True):
        torch.testing.assert_close(a.double().cpu(), b.double().cpu(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention(ops, dtype, scale):
    q, k, v, bias = tensors((2, 5, 3, 7), (2, 9, 3, 7), (2, 9, 3, 4), (2, 3, 5, 9), dtype=dtype)
    tolerance = 1e-4 if dtype == torch.float32 else 6e-2
    got = ops.memory_efficient_attention(q, k, v, bias, scale=scale, op=ops.MemoryEfficientAttentionCutlassOp)
    assert got.dtype == dtype
    agree(got, reference(q, k, v, bias, scale), [q, k, v, bias], tolerance)


def test_the_forms_without_heads_and_with_groups(ops):
    q, k, v, bias = tensors((2, 5, 7), (2, 9, 7), (2, 9, 4), (2, 5, 9))
    expected = reference(*(each.unsqueeze(2) for each in (q, k, v)), bias.unsqueeze(1)).squeeze(2)
    agree(ops.memory_efficient_attention(q, k, v, bias), expected, [q, k, v, bias])
    q, k = tensors((2, 5, 2, 3, 7), (2, 9, 2, 1, 7))
    wide = k.expand(2, 9, 2, 3, 7)
    flat = (each.flatten(2, 3) for each in (q, wide, wide))
    got = ops.memory_efficient_attention_forward(q, wide, wide)
    assert got.shape == q.shape
    agree(got, reference(*flat).view(q.shape), [q, k])
    with pytest.raises(ValueError, match="expand key and value"):
        ops.memory_efficient_attention(q, k, k)


@pytest.mark.parametrize("name", ["causal", "biased", "bottom_right", "local", "causal_local"])
def test_biases_of_one_sequence(ops, masks, name):
    q, k, added = tensors((1, 5, 2, 8), (1, 9, 2, 8), (1, 2, 5, 9))
    bias = {
        "causal": ops.LowerTriangularMask(),
        "biased": ops.LowerTriangularMask().add_bias(added),
        "bottom_right": masks.LowerTriangularFromBottomRightMask(),
        "local": masks.LocalAttentionFromBottomRightMask(2, 1),
        "causal_local": masks.LowerTriangularFromBottomRightMask().make_local_attention(3),
    }[name]
    row, column = torch.arange(5).unsqueeze(1), torch.arange(9)
    seen = {
        "causal": column <= row,
        "biased": column <= row,
        "bottom_right": column <= row + 4,
        "local": (column >= row + 2) & (column <= row + 5),
        "causal_local": (column > row + 1) & (column <= row + 4),
    }[name]
    dense = torch.zeros(5, 9).masked_fill(~seen, -torch.inf)
    assert torch.equal(bias.to("chip").materialize((1, 2, 5, 9), device="chip").cpu().isfinite()[0, 0], seen)
    inputs = [q, k] + ([added] if name == "biased" else [])
    expected = reference(q, k, k, dense + added.cpu() if name == "biased" else dense)
    agree(ops.memory_efficient_attention(q, k, k, bias), expected, inputs)


@pytest.mark.parametrize(
    "name", ["blocks", "causal", "bottom_right", "local", "local_bottom_right", "padded"]
)
def test_biases_of_packed_sequences(ops, masks, name):
    q, k = tensors((1, 8, 2, 6), (1, 15, 2, 6))
    lengths = ([2, 5, 1], [4, 8, 3])
    blocks = masks.BlockDiagonalMask.from_seqlens(*lengths)
    padded = masks.BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens([2, 5, 1], 5, [4, 5, 3])
    bias = {
        "blocks": blocks,
        "causal": blocks.make_causal(),
        "bottom_right": blocks.make_causal_from_bottomright(),
        "local": blocks.make_local_attention(2),
        "local_bottom_right": blocks.make_local_attention_from_bottomright(2),
        "padded": padded,
    }[name]
    starts = [0, 5, 10] if name == "padded" else [0, 4, 12]
    keys = [4, 5, 3] if name == "padded" else lengths[1]
    expected = []
    for first, start, queries, count in zip([0, 2, 7], starts, lengths[0], keys, strict=True):
        row, column = torch.arange(queries).unsqueeze(1), torch.arange(count)
        shift = count - queries if name in ("bottom_right", "local_bottom_right", "padded") else 0
        hidden = torch.zeros(queries, count, dtype=torch.bool)
        if name != "blocks":
            hidden |= column > row + shift
        if name.startswith("local"):
            hidden |= column < row + shift - 1
        part = k[:, start : start + count]
        dense = torch.zeros(queries, count).masked_fill(hidden, -torch.inf)
        expected.append(reference(q[:, first : first + queries], part, part, dense))
    agree(ops.memory_efficient_attention(q, k, k, bias), torch.cat(expected, 1), [q, k])


def test_lists_of_tensors_are_packed_and_split(masks):
    given = tensors((2, 3, 4), (1, 5, 4))
    bias, packed = masks.BlockDiagonalCausalMask.from_tensor_list(given)
    assert packed.shape == (1, 11, 4) and bias.q_seqinfo.seqstart.tolist() == [0, 3, 6, 11]
    assert all(torch.equal(a, b) for a, b in zip(bias.split(packed), given, strict=True))
    bias, queries, keys, values = masks.BlockDiagonalMask.from_tensor_lists_qkv(given, given)
    assert torch.equal(queries, keys) and values is None
    assert [tuple(each.shape) for each in bias.split_queries(queries)] == [(2, 3, 4), (1, 5, 4)]


def test_parts_of_the_keys_are_merged(ops):
    fmha = importlib.import_module("xformers.ops.fmha")
    q, k, v = tensors((2, 5, 3, 7), (2, 9, 3, 7), (2, 9, 3, 4))
    parts = [fmha.memory_efficient_attention_partial(q, k[:, s], v[:, s]) for s in (slice(4), slice(4, 9))]
    merged, lse = fmha.merge_attentions(*zip(*parts, strict=True))
    expected = reference(q, k, v)
    torch.testing.assert_close(merged.double().cpu(), expected, rtol=1e-4, atol=1e-5)
    out, whole = ops.memory_efficient_attention_forward_requires_grad(q, k, v)
    torch.testing.assert_close(lse, whole)
    grad = torch.ones_like(out)
    found = ops.memory_efficient_attention_backward(grad, out, whole, q, k, v)
    wanted = torch.autograd.grad(expected, [q, k, v], torch.ones_like(expected))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    torch.manual_seed(0)
    dropped = ops.memory_efficient_attention(q, k, torch.ones_like(v), p=0.5)
    assert 0.7 < dropped.mean() < 1.3 and dropped.std() > 0.1


def test_what_attention_refuses(ops, masks):
    q, k = tensors((2, 5, 2, 8), (2, 5, 2, 8))
    attention = ops.memory_efficient_attention
    for arguments, error, said in (
        ((q, k, k[0]), ValueError, "must all have 3, 4 or 5 dimensions"),
        ((q, k, k, torch.ones(2, 2, 5, 5, dtype=torch.bool)), ValueError, "use 0 and -inf"),
        (
            (q, k, k, masks.BlockDiagonalMask.from_seqlens([5, 5])),
            ValueError,
            "needs a batch size of 1, got 2",
        ),
        ((q, k.int(), k.int()), NotImplementedError, "quantized keys"),
        ((q, k, k, object()), NotImplementedError, "attn_bias object is not supported"),
    ):
        with pytest.raises(error, match=said):
            attention(*arguments)
    with pytest.raises(NotImplementedError, match="dropout is not supported"):
        ops.memory_efficient_attention_forward_requires_grad(q, k, k, p=0.1)
    with pytest.raises(ValueError, match="window_size is 0"):
        masks.LowerTriangularFromBottomRightMask().make_local_attention(0)
    with pytest.raises(ValueError, match="sequence 0 has 3 queries and 2 keys"):
        masks.BlockDiagonalMask.from_seqlens([3], [2]).make_causal_from_bottomright()


def test_blocks_and_indexing(ops):
    x, y, source = tensors((4, 3, 6), (4, 3, 6), (2, 3, 6))
    for packed in (True, False):
        block = ops.SwiGLU(6, 10, 5, bias=packed, _pack_weights=packed).to("chip")
        w12 = block.w12 or [block.w1, block.w2]
        pair = w12.weight.chunk(2) if packed else [each.weight for each in w12]
        biases = w12.bias.chunk(2) if packed else (None, None)
        w3, b3 = block.w3.weight, block.w3.bias
        expected = F.linear(F.silu(F.linear(x, pair[0], biases[0])) * F.linear(x, pair[1], biases[1]), w3, b3)
        torch.testing.assert_close(block(x), expected)
        torch.testing.assert_close(ops.swiglu(x, pair[0], biases[0], pair[1], biases[1], w3, b3), expected)
    norm = ops.RMSNorm(6, eps=1e-5).to("chip")
    torch.testing.assert_close(norm(x), F.rms_norm(x, (6,), norm.weight, 1e-5))
    with torch.no_grad():
        total = x.clone()
        torch.testing.assert_close(norm.increment_and_forward_(total, y), norm(x + y))
        assert torch.equal(total, x + y)
    index, scaling = torch.tensor([3, 1], device="chip"), torch.rand(6, device="chip")
    expected = torch.index_add(x, 0, index, source * scaling, alpha=2.0)
    agree(ops.scaled_index_add(x * 1, index, source, scaling, 2.0), expected.double(), [x, source])
    rows = [x.flatten(1), source.flatten(1)]
    found = ops.index_select_cat(rows, [index, index[1:]])
    torch.testing.assert_close(found, torch.cat([rows[0][[3, 1]].flatten(), rows[1][[1]].flatten()]))
    assert [each.shape for each in ops.unbind(x, 1)] == [(4, 6)] * 3


def test_the_gradient_of_a_scaled_sum_is_rounded_once(ops):
    """xFormers' kernels multiply in float32; its own test allows a relative difference of 1e-5 in float16."""
    index = torch.tensor([3, 1], device="chip")
    source, scaling = (torch.randn(2, 3, 64, device="chip").half(), torch.randn(64, device="chip").half())
    source.requires_grad_()
    out, grad = torch.zeros(4, 3, 64, device="chip").half(), torch.randn(4, 3, 64, device="chip").half()
    ops.scaled_index_add(out, index, source, scaling, 0.73).backward(grad)
    expected = (grad[index].float() * 0.73 * scaling.float()).half()
    assert torch.equal(source.grad, expected)


# ---- an installed xFormers, which has no kernels for the chip ------------------------------------------------------
ATTENTION = """
import torch
import xformers.ops as xo
from xformers.ops.fmha import attn_bias
torch.manual_seed(0)
q, k = torch.randn(1, 9, 2, 8, device='cuda', requires_grad=True), torch.randn(1, 9, 2, 8, device='cuda')
blocks = attn_bias.BlockDiagonalMask.from_seqlens([4, 5])
added = torch.randn(1, 2, 9, 9, device='cuda')
found = []
for bias in (None, added, xo.LowerTriangularMask(), attn_bias.LowerTriangularMaskWithTensorBias(added),
             blocks, blocks.make_causal(), blocks.make_local_attention(2)):
    out = xo.memory_efficient_attention(q, k, value=k, attn_bias=bias)
    mask = bias if bias is None or bias is added else bias.materialize((1, 1, 9, 9), device='cuda')
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(each.transpose(1, 2) for each in (q, k, k)), attn_mask=mask).transpose(1, 2)
    grads = [torch.autograd.grad(each.square().sum(), q)[0] for each in (out, expected)]
    found += [(out - expected).abs().max().item(), (grads[0] - grads[1]).abs().max().item()]
print(max(found) < 1e-4, len(found))
"""


@pytest.mark.parametrize("kind", ["stand-in", pytest.param("real", marks=pytest.mark.full)])
def test_a_script_with_either_package(kind):
    if (kind == "real") != HAS_REAL:
        pytest.skip("the real xformers is installed" if HAS_REAL else "no xformers")
    folders = [] if HAS_REAL else provide.folders("xformers")
    said = output(
        f"import sys\nsys.path[:0] = {folders}\nfrom isthmus import shim\nshim.enter()\n{ATTENTION}"
    )
    assert said.splitlines()[-1] == "True 14"


def test_an_installed_package_keeps_its_functions_for_other_devices(tmp_path):
    """Patches send the accelerator's tensors to isthmus.ops, and leave those of the CPU to the package."""
    for module in ("", "ops", "ops/fmha"):
        (tmp_path / "xformers" / module).mkdir(exist_ok=True)
        (tmp_path / "xformers" / module / "__init__.py").touch()
    names = (
        *("memory_efficient_attention", "memory_efficient_attention_forward", "merge_attentions"),
        *("memory_efficient_attention_forward_requires_grad", "memory_efficient_attention_backward"),
        "memory_efficient_attention_partial",
    )
    (tmp_path / "xformers/ops/fmha/__init__.py").write_text(
        "".join(f"def {name}(*args, **kwargs): return 'its own'\n" for name in names)
    )
    (tmp_path / "xformers/ops/indexing.py").write_text(
        "def index_select_cat(sources, indices): return 'its own'\n"
        "def scaled_index_add(input, index, source, scaling=None, alpha=1.0): return 'its own'\n"
    )
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from isthmus import shim
        shim.enter()
        import torch
        from xformers.ops import fmha, indexing
        q = torch.ones(1, 3, 2, 4)
        print(fmha.memory_efficient_attention(q, q, q))
        q = q.cuda()
        print(fmha.memory_efficient_attention(p=0.0, query=q, key=q, value=q).sum().item())
        print(indexing.index_select_cat([q[0, 0]], [torch.tensor([1]).cuda()]).shape[0])
    """
    assert output(code).splitlines() == ["its own", "24.0", "4"]
