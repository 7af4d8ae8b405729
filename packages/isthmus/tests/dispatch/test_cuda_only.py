"""ATen operators with only CUDA kernels: decomposed if public functions reach them, otherwise refused by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.attention.varlen import varlen_attn

import isthmus._C as core
from tools.pages.cuda_only import dummy_argument, overloads, public_function

ROUTES = core.routes()
SERVED = [name for name in overloads() if ROUTES[name][0] != "none"]
REFUSED = [name for name in overloads() if ROUTES[name][0] == "none"]


@pytest.mark.host("its routes")
def test_every_served_operator_names_its_public_function() -> None:
    assert len(overloads()) == len(SERVED) + len(REFUSED) > 90
    assert [name for name in SERVED if not public_function(name)] == []
    assert [name for name in REFUSED if public_function(name)] == []


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    base, _, overload = name.removeprefix("aten::").partition(".")
    schema = torch._C._get_schema("aten::" + base, overload)
    positional = [dummy_argument(a) for a in schema.arguments if not a.kwarg_only]
    keywords = {a.name: dummy_argument(a) for a in schema.arguments if a.kwarg_only}
    operator = getattr(getattr(torch.ops.aten, base), overload or "default")
    with (
        pytest.raises(NotImplementedError, match=f"{name} is not available on chip") as error,
        torch.no_grad(),
    ):
        operator(*positional, **keywords)
    assert "none for CPU tensors" in str(error.value) or "sparse, quantized, nested or mkldnn" in str(
        error.value
    )


@pytest.mark.parametrize(
    "keys",
    [("CUDA",), ("CUDA", "Meta"), ("CUDA", "SparseCPU"), ("CUDA", "QuantizedCPU"), ("Meta",)],
    ids="+".join,
)
def test_the_advice_of_a_refusal_can_be_followed(keys: tuple[str, ...]) -> None:
    """CPU tensors are recommended only of a layout for which the operator has a kernel."""
    name = "advice_" + "_".join(keys).lower()
    with torch.library._scoped_library("cuda_only", "FRAGMENT") as library:
        library.define(f"{name}(Tensor x) -> Tensor")
        for key in keys:
            library.impl(name, lambda x: x, key)
        operator = getattr(torch.ops.cuda_only, name)
        with pytest.raises(NotImplementedError, match="is not available on chip") as error:
            operator(torch.ones(1, device="chip"))
        with pytest.raises(NotImplementedError):
            operator(torch.ones(1))
        if "SparseCPU" in keys:
            assert operator(torch.ones(1).to_sparse()).is_sparse
    has_layout = any(key.endswith("CPU") for key in keys)
    assert ("Call it on those, on CPU" in str(error.value)) == has_layout
    assert ("none for CPU tensors" in str(error.value)) != has_layout


# ---- products with a wider result


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_in_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b, c = torch.randn(3, 4, 5).to(dtype), torch.randn(3, 5, 6).to(dtype), torch.randn(3, 4, 6)
    x, y, z = a.to("chip"), b.to("chip"), c.to("chip")
    wide = torch.float32
    assert torch.equal(torch.mm(x[0], y[0], out_dtype=wide).cpu(), torch.mm(a[0].float(), b[0].float()))
    assert torch.equal(torch.bmm(x, y, out_dtype=wide).cpu(), torch.bmm(a.float(), b.float()))
    expected = torch.addmm(c[0], a[0].float(), b[0].float(), beta=2, alpha=3)
    assert torch.equal(torch.addmm(z[0], x[0], y[0], out_dtype=wide, beta=2, alpha=3).cpu(), expected)
    expected = torch.baddbmm(c, a.float(), b.float())
    assert torch.equal(torch.baddbmm(z, x, y, out_dtype=wide).cpu(), expected)
    out = torch.empty(0, device="chip")
    torch.mm(x[0], y[0], out_dtype=wide, out=out)
    assert torch.equal(out.cpu(), torch.mm(a[0].float(), b[0].float()))


def test_product_in_a_wider_dtype_under_autocast() -> None:
    x, y, total = torch.randn(2, 4, 4).half().to("chip").unbind() + (torch.zeros(4, 4, device="chip"),)
    expected = torch.mm(x.float(), y.float())
    with torch.autocast("chip", dtype=torch.float16):
        assert torch.equal(torch.addmm(total, x, y, out_dtype=torch.float32, out=total), expected)
        assert torch.equal(torch.mm(x, y, out_dtype=torch.float32), expected)
        assert torch.equal(torch.bmm(x[None], y[None], out_dtype=torch.float32)[0], expected)
        found = torch.baddbmm(torch.zeros(1, 4, 4, device="chip"), x[None], y[None], out_dtype=torch.float32)
    assert torch.equal(found[0], expected)


def test_product_refuses_a_narrower_result() -> None:
    x = torch.ones(2, 2, device="chip")
    with pytest.raises(RuntimeError, match="out_dtype must be"):
        torch.mm(x, x, out_dtype=torch.bfloat16)


# ---- synchronised batch normalisation


@pytest.fixture
def single_process_group() -> Iterator[None]:
    dist.init_process_group("chip", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(8, 5), (4, 5, 3), (2, 5, 3, 4)])
def test_parts_of_batch_norm_over_two_ranks(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Two halves of a batch, combined by hand, against BatchNorm of the whole."""
    torch.manual_seed(0)
    whole = torch.randn(shape).to(dtype)
    upstream = torch.randn(shape).to(dtype)
    weight, bias = torch.rand(5) + 0.5, torch.randn(5)
    reference = nn.BatchNorm1d(5) if len(shape) < 4 else nn.BatchNorm2d(5)
    with torch.no_grad():
        reference.weight.copy_(weight)
        reference.bias.copy_(bias)
    source = whole.float().requires_grad_()
    expected = reference(source)
    expected.backward(upstream.float())

    cut = max(1, shape[0] // 2 - 1)  # halves of different size
    parts = [part.to("chip") for part in (whole[:cut], whole[cut:])]
    w, b = weight.to("chip"), bias.to("chip")
    stats = [torch.batch_norm_stats(part, reference.eps) for part in parts]
    counts = torch.tensor([part.numel() / 5 for part in parts], device="chip")
    running_mean, running_var = torch.zeros(5, device="chip"), torch.ones(5, device="chip")
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        parts[0],
        torch.stack([s[0] for s in stats]),
        torch.stack([s[1] for s in stats]),
        running_mean,
        running_var,
        0.1,
        reference.eps,
        counts,
    )
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(running_mean.cpu(), reference.running_mean, **close)
    torch.testing.assert_close(running_var.cpu(), reference.running_var, **close)
    outputs = [torch.batch_norm_elemt(part, w, b, mean, invstd, reference.eps) for part in parts]
    assert all(output.dtype == dtype for output in outputs)
    torch.testing.assert_close(torch.cat(outputs).float().cpu(), expected.detach(), **close)

    grads = [grad.to("chip") for grad in (upstream[:cut], upstream[cut:])]
    reduced = [
        torch.batch_norm_backward_reduce(grad, part, mean, invstd, w, True, True, True)
        for grad, part in zip(grads, parts, strict=True)
    ]
    sum_dy, sum_dy_xmu, grad_weight, grad_bias = (torch.stack(r).sum(0) for r in zip(*reduced, strict=True))
    inputs = [
        torch.batch_norm_backward_elemt(grad, part, mean, invstd, w, sum_dy, sum_dy_xmu, counts.int())
        for grad, part in zip(grads, parts, strict=True)
    ]
    assert source.grad is not None and reference.weight.grad is not None and reference.bias.grad is not None
    torch.testing.assert_close(torch.cat(inputs).float().cpu(), source.grad, **close)
    loose = {"rtol": 5e-2, "atol": 0.2} if dtype is torch.bfloat16 else close
    torch.testing.assert_close(grad_weight.float().cpu(), reference.weight.grad, **loose)
    torch.testing.assert_close(grad_bias.float().cpu(), reference.bias.grad, **loose)


def test_batch_norm_gathers_equal_counts() -> None:
    data = torch.randn(6, 4, device="chip")
    mean, invstd = torch.batch_norm_stats(data, 1e-5)
    joined = torch.batch_norm_gather_stats(data, mean[None], invstd[None], None, None, 0.1, 1e-5, 6)
    torch.testing.assert_close(joined, (mean, invstd))


# ---- fused cells, as transforms and exported programs reach them


@pytest.mark.parametrize("gates", [4, 3], ids=["lstm", "gru"])
def test_fused_cell(gates: int) -> None:
    torch.manual_seed(0)
    batch, hidden = 3, 5
    cell = nn.LSTMCell(2, hidden) if gates == 4 else nn.GRUCell(2, hidden)
    data, state = torch.randn(batch, 2), torch.randn(batch, hidden)
    cx = torch.randn(batch, hidden)
    inputs = [
        t.detach().to("chip").requires_grad_()
        for t in (data @ cell.weight_ih.T, state @ cell.weight_hh.T, cx if gates == 4 else state)
    ]
    biases = [cell.bias_ih.detach().to("chip"), cell.bias_hh.detach().to("chip")]
    fused = torch.ops.aten._thnn_fused_lstm_cell if gates == 4 else torch.ops.aten._thnn_fused_gru_cell
    result = fused(*inputs, *biases)
    expected = cell(data, (state, cx) if gates == 4 else state)
    torch.testing.assert_close(result[0].cpu(), expected[0] if gates == 4 else expected)
    result[0].sum().backward()

    plain = [t.detach().cpu().requires_grad_() for t in inputs]
    total = [plain[0] + cell.bias_ih, plain[1] + cell.bias_hh]
    _plain_cell(gates, total, plain[2]).sum().backward()
    for ours, theirs in zip(inputs, plain, strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


def _plain_cell(gates: int, total: list[torch.Tensor], state: torch.Tensor) -> torch.Tensor:
    x, h = total[0].chunk(gates, 1), total[1].chunk(gates, 1)
    if gates == 4:
        i, f, g, o = (a + b for a, b in zip(x, h, strict=True))
        return o.sigmoid() * (f.sigmoid() * state + i.sigmoid() * g.tanh()).tanh()
    reset, update = (x[0] + h[0]).sigmoid(), (x[1] + h[1]).sigmoid()
    candidate = (x[2] + reset * h[2]).tanh()
    return (1 - update) * candidate + update * state


# ---- attention over packed sequences


def reference_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: tuple[int, int]
) -> torch.Tensor:
    """One sequence, [tokens, heads, features], in the dtype of its arguments."""
    repeat = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * q.size(-1) ** -0.5
    row = torch.arange(q.size(0))[:, None] + k.size(0) - q.size(0)
    column = torch.arange(k.size(0))[None]
    hidden = torch.zeros_like(scores[0], dtype=torch.bool)
    if window[0] >= 0:
        hidden |= column < row - window[0]
    if window[1] >= 0:
        hidden |= column > row + window[1]
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1).nan_to_num(0)
    return torch.einsum("hqk,khd->qhd", weights, v)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 1), (3, 0)])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_varlen_attention(window: tuple[int, int], key_heads: int) -> None:
    torch.manual_seed(0)
    queries, keys = [5, 3, 7, 0, 1], [5, 6, 4, 2, 1]
    shapes = [(sum(queries), 4, 8), (sum(keys), key_heads, 8), (sum(keys), key_heads, 8)]
    tensors = [torch.randn(shape) for shape in shapes]
    upstream = torch.randn(shapes[0])
    cum_q, cum_k = (torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (queries, keys))
    ours = [t.to("chip").requires_grad_() for t in tensors]
    output = varlen_attn(
        ours[0],
        ours[1],
        ours[2],
        cum_q.to("chip"),
        cum_k.to("chip"),
        max(queries),
        max(keys),
        window_size=window,
        enable_gqa=key_heads != 4,
    )
    output.backward(upstream.to("chip"))

    theirs = [t.double().requires_grad_() for t in tensors]
    pieces = zip(theirs[0].split(queries), theirs[1].split(keys), theirs[2].split(keys), strict=True)
    expected = torch.cat([reference_attention(*piece, window) for piece in pieces])
    expected.backward(upstream.double())
    torch.testing.assert_close(output.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    for a, b in zip(ours, theirs, strict=True):
        assert a.grad is not None
        torch.testing.assert_close(a.grad.cpu().double(), b.grad, rtol=1e-5, atol=1e-5)


def test_varlen_attention_refuses_paged_keys() -> None:
    x = torch.ones(2, 1, 8, device="chip")
    cum = torch.tensor([0, 2], dtype=torch.int32, device="chip")
    with pytest.raises(NotImplementedError, match="block_table"):
        torch.ops.aten._flash_attention_forward(x, x, x, cum, cum, 2, 2, 0.0, False, False, block_table=cum)


# ---- SyncBatchNorm itself


def test_sync_batch_norm_of_one_rank(single_process_group: None) -> None:
    torch.manual_seed(0)
    data, upstream = torch.randn(4, 3, 5, 5), torch.randn(4, 3, 5, 5)
    plain = nn.BatchNorm2d(3)
    module = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(3)).to("chip")
    ours, theirs = data.to("chip").requires_grad_(), data.clone().requires_grad_()
    module(ours).backward(upstream.to("chip"))
    plain(theirs).backward(upstream)
    assert ours.grad is not None and theirs.grad is not None
    torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(module.running_var.cpu(), plain.running_var)
