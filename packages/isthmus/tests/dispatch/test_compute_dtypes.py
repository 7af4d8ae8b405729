"""Dtypes in which the CPU's kernels compute for the chip: 16-bit sums in float32, and dtypes that only CUDA has."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import isthmus._C as core
from isthmus.chip import compute_dtypes
from tests.helpers import children
from tests.helpers.graphs import capture
from tools.repository import ROOT

pytestmark = pytest.mark.host("CPU's kernels compute for it")

Tensor = torch.Tensor
COUNT = 5000  # bfloat16 sums of ones end at 256, float16's at 2048
BOTH = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


def gradient(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """The gradient of the first input, with ones upstream."""
    leaf = inputs[0].detach().requires_grad_()
    function(leaf, *inputs[1:]).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def same_index(device: Any) -> Tensor:
    return torch.zeros(COUNT, dtype=torch.long, device=device)


def peak(size: int, dimensions: int) -> Tensor:
    """An image with one pixel that is the maximum of every window around it."""
    image = torch.zeros(1, 1, *[size] * dimensions)
    image[(0, 0, *[size // 2] * dimensions)] = 1
    return image


def bags(mode: str, bag: int) -> Callable[[Tensor], Tensor]:
    return lambda w: gradient(lambda w: F.embedding_bag(same_index(w.device).view(-1, bag), w, mode=mode), w)


def sampled(mode: str) -> Callable[[Tensor], Tensor]:
    def grid(x: Tensor) -> Tensor:
        return torch.zeros(1, 1, COUNT, 2, device=x.device, dtype=x.dtype)

    return lambda x: gradient(lambda x: F.grid_sample(x, grid(x), mode=mode, align_corners=True), x)


def bias_of(layer: Callable[[], torch.nn.Module]) -> Callable[[Tensor], Tensor]:
    def gradient_of_bias(x: Tensor) -> Tensor:
        module = layer().to(x.device, x.dtype)
        module(x).sum().backward()
        assert isinstance(module.bias.grad, Tensor)
        return module.bias.grad

    return gradient_of_bias


W = torch.zeros(4, 2)
SUMS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "embedding": (lambda w: gradient(lambda w: F.embedding(same_index(w.device), w), w), W),
    "embedding of a view": (lambda w: gradient(lambda w: F.embedding(same_index(w.device), w.t()), w), W.t()),
    "embedding with a padding index": (
        lambda w: gradient(lambda w: F.embedding(same_index(w.device), w, padding_idx=1), w), W,
    ),
    "embedding_bag sum": (bags("sum", COUNT), W),
    "embedding_bag mean": (bags("mean", 1), W),
    "embedding_bag max": (bags("max", 1), W),
    "LayerNorm": (bias_of(lambda: torch.nn.LayerNorm(8)), torch.arange(COUNT * 8.0).view(COUNT, 8) % 7),
    "GroupNorm": (bias_of(lambda: torch.nn.GroupNorm(2, 8)), torch.arange(COUNT * 8.0).view(COUNT, 8) % 7),
    "BatchNorm": (bias_of(lambda: torch.nn.BatchNorm1d(8)), torch.arange(COUNT * 8.0).view(COUNT, 8) % 7),
    "x[i]": (lambda x: gradient(lambda x: x[same_index(x.device)], x), W),
    "x[:, i]": (lambda x: gradient(lambda x: x[:, same_index(x.device)], x), W),
    "x[i, i]": (lambda x: gradient(lambda x: x[same_index(x.device), same_index(x.device)], x), W),
    "index_put_": (
        lambda x: x.clone().index_put_((same_index(x.device),), torch.ones_like(x[:1]), accumulate=True), W,
    ),
    "take": (lambda x: gradient(lambda x: x.take(same_index(x.device)), x), W),
    "index_select": (lambda x: gradient(lambda x: x.index_select(0, same_index(x.device)), x), W),
    "index_add": (lambda x: x.index_add(0, same_index(x.device), torch.ones_like(x[:1]).expand(COUNT, 2)), W),
    "gather": (lambda x: gradient(lambda x: x.gather(0, same_index(x.device)[:, None].expand(-1, 2)), x), W),
    "scatter_add": (
        lambda x: x.scatter_add(
            0, same_index(x.device)[:, None].expand(-1, 2), torch.ones_like(x[:1]).expand(COUNT, 2)
        ),
        W,
    ),
    "expand": (lambda x: gradient(lambda x: x.expand(COUNT, 4, 2), x), W),
    "fold": (lambda x: F.fold(x, (79, 79), 60)[0, 0, 40, 40], torch.ones(1, 3600, 400)),
    "unfold": (lambda x: gradient(lambda x: F.unfold(x, 60), x), torch.ones(1, 1, 79, 79)),
    "Tensor.unfold": (lambda x: gradient(lambda x: x.unfold(0, COUNT // 2, 1), x), torch.zeros(COUNT)),
    "grid_sample bilinear": (sampled("bilinear"), torch.zeros(1, 1, 3, 3)),
    "grid_sample nearest": (sampled("nearest"), torch.zeros(1, 1, 3, 3)),
    "grid_sample bicubic": (sampled("bicubic"), torch.zeros(1, 1, 3, 3)),
    "replicate padding": (lambda x: gradient(lambda x: F.pad(x, (COUNT, 0), mode="replicate"), x), W[None]),
    "max_pool2d": (lambda x: gradient(lambda x: F.max_pool2d(x, 60, 1), x), peak(120, 2)),
    "max_pool3d": (lambda x: gradient(lambda x: F.max_pool3d(x, 15, 1), x), peak(30, 3)),
    "avg_pool2d": (
        lambda x: gradient(lambda x: F.avg_pool2d(x, 60, 1, divisor_override=1), x), torch.zeros(1, 1, 130, 130),
    ),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 1), torch.arange(COUNT).view(1, 1, 5, 10, 100) % 5.0),
    "conv_transpose1d": (lambda x: F.conv_transpose1d(x, x), torch.ones(1, 1, COUNT)),
    "conv_transpose2d": (lambda x: F.conv_transpose2d(x, x), torch.ones(1, 1, 71, 71)),
    "conv_transpose2d, dilated": (
        lambda x: F.conv_transpose2d(x, x[..., :5, :5], stride=2, dilation=3, output_padding=1),
        torch.ones(1, 1, 71, 71),
    ),
    "conv1d's input": (lambda x: gradient(lambda x: F.conv1d(x, x[..., :COUNT].detach()), x), torch.ones(1, 1, 9000)),
    "conv3d's input": (
        lambda x: gradient(lambda x: F.conv3d(x, x[..., :18, :18, :18].detach()), x), torch.ones(1, 1, 35, 35, 35),
    ),
    "addbmm": (lambda x: torch.addbmm(x[0], x, x.mT), torch.ones(COUNT, 2, 2)),
    "nll_loss": (lambda x: F.nll_loss(x, torch.zeros(COUNT, dtype=torch.long, device=x.device), reduction="sum"),
                 -torch.ones(COUNT, 2)),
    "batch_norm": (
        lambda x: F.batch_norm(x, None, None, training=True), torch.arange(COUNT * 2.0).view(-1, 2) % 7 + 9,
    ),
    "log_softmax": (lambda x: F.log_softmax(x, -1), torch.arange(COUNT * 2.0).view(2, -1) % 3),
    "softmax": (lambda x: F.softmax(x, -1), torch.arange(80.0).view(8, -1) % 7),
    "prod": (lambda x: x.prod(-1), 1 + torch.arange(40.0).view(4, -1) % 7 / 64),
    "interpolate": (lambda x: F.interpolate(x, 37, mode="linear"), torch.arange(30.0).view(1, 1, -1) % 7),
    "adaptive_avg_pool2d": (lambda x: gradient(lambda x: F.adaptive_avg_pool2d(x, 100), x), torch.zeros(1, 1, 1, 1)),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_16_bits_are_float32s_rounded_once(name: str, dtype: torch.dtype) -> None:
    function, tensor = SUMS[name]
    expected = function(tensor).to(dtype)
    found = function(tensor.to("chip", dtype))
    assert found.dtype == dtype and found.device.type == "chip"
    assert torch.equal(found.cpu(), expected)


def test_saturated_sums_are_exact() -> None:
    """The values themselves, not only the equality with float32."""
    for dtype, sum_of_ones in ((torch.bfloat16, 4992), (torch.float16, 5000)):
        for name in ("embedding", "LayerNorm", "x[i]", "index_add"):
            function, tensor = SUMS[name]
            assert function(tensor.to("chip", dtype)).max().item() == sum_of_ones, name
        function, tensor = SUMS["fold"]
        assert function(tensor.to("chip", dtype)).item() == 400


def test_sums_with_the_cpus_bits_on_request() -> None:
    """With ISTHMUS_HOST_ACCUMULATE=cpu the same calls saturate, as on the CPU."""
    children.output(
        """
        import torch
        from tests.dispatch.test_compute_dtypes import SUMS
        saturated = 0
        for dtype in (torch.bfloat16, torch.float16):
            for name, (function, tensor) in SUMS.items():
                expected = function(tensor.to(dtype))
                assert torch.equal(function(tensor.to("chip", dtype)).cpu(), expected), (name, dtype)
                saturated += not torch.equal(expected, function(tensor).to(dtype))
        assert saturated > len(SUMS), saturated
        """,
        ISTHMUS_HOST_ACCUMULATE="cpu",
        PYTHONPATH=str(ROOT),
    )


SCALED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, y: torch.add(x, y, alpha=-1e-3),
    "add_": lambda x, y: x.clone().add_(y, alpha=0.3),
    "add, out=": lambda x, y: torch.add(x, y, alpha=3, out=torch.empty_like(x)),
    "add a number": lambda x, y: torch.add(x, 0.7, alpha=0.3),
    "x + number": lambda x, y: x + 0.7,
    "x += number": lambda x, y: x.clone().add_(-1e-3),
    "x + number, out=": lambda x, y: torch.add(x, 1 / 3, out=torch.empty_like(x)),
    "x - number": lambda x, y: x - 1.0001,
    "number - x": lambda x, y: 0.3 - x,
    "x + integer": lambda x, y: x + 4097,
    "sub": lambda x, y: torch.sub(x, y, alpha=1.7),
    "sub_ of a row": lambda x, y: x.clone().sub_(y[:1], alpha=2),
    "rsub": lambda x, y: torch.rsub(x, y, alpha=0.9),
    "_foreach_add": lambda x, y: torch._foreach_add([x], [y], alpha=-1e-3)[0],
    "_foreach_add a number": lambda x, y: torch._foreach_add([x], 0.7)[0],
}


@BOTH
@pytest.mark.parametrize("name", SCALED)
def test_scaled_sums_are_rounded_once(name: str, dtype: torch.dtype) -> None:
    function, (x, y) = (
        SCALED[name],
        torch.randn(2, 40, 8, generator=torch.Generator().manual_seed(0)).to(dtype),
    )
    assert torch.equal(function(x.to("chip"), y.to("chip")).cpu(), function(x.float(), y.float()).to(dtype))


def test_scaled_sums_beyond_the_largest_number_of_float16() -> None:
    x = torch.full((64,), 60000.0, dtype=torch.float16, device="chip")
    assert torch.sub(x, x, alpha=2).unique().tolist() == [-60000.0]
    assert (x - 70000).unique().tolist() == [-10000.0] and (70000.0 - x).unique().tolist() == [10000.0]


@BOTH
def test_sparse_gradients_are_summed_in_float32(dtype: torch.dtype) -> None:
    weight = W.to("chip", dtype).requires_grad_()
    F.embedding(same_index("chip"), weight, sparse=True).sum().backward()
    assert weight.grad is not None
    summed = weight.grad.coalesce()
    assert summed.is_coalesced() and summed.dtype == dtype
    total = torch.full((1, 2), float(COUNT)).to(dtype)
    assert torch.equal(summed.values().cpu(), total)
    assert torch.equal(weight.grad.to_dense()[:1].cpu(), total)
    assert torch.equal(torch.zeros_like(weight).add_(weight.grad)[:1].cpu(), total)


@BOTH
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_products_of_sparse_matrices_are_summed_in_float32(layout: torch.layout, dtype: torch.dtype) -> None:
    ones = torch.ones(2, COUNT, dtype=dtype, device="chip")
    matrix = ones.to_sparse(layout=layout)
    expected = torch.full((2, 2), float(COUNT)).to(dtype)
    assert torch.equal((matrix @ ones.T).cpu(), expected)
    added = torch.addmm(torch.ones(2, 2, dtype=dtype, device="chip"), matrix, ones.T)
    assert torch.equal(added.cpu(), torch.full((2, 2), float(COUNT + 1)).to(dtype))
    if layout is not torch.sparse_csc:
        assert torch.equal((matrix @ ones[0]).cpu(), expected[0])
        assert torch.equal((matrix @ ones.T.to_sparse(layout=layout)).to_dense().cpu(), expected)


def test_other_dtypes_are_not_converted() -> None:
    x = torch.zeros(4, 2, device="chip", requires_grad=True)
    index = torch.zeros(9, dtype=torch.long, device="chip")
    core.reset_dispatch_stats()
    F.embedding(index, x).sum().backward()
    x.detach().double().index_add_(0, index, torch.ones(9, 2, device="chip", dtype=torch.float64))
    x.detach().bfloat16().index_put_((index,), torch.ones(2, device="chip", dtype=torch.bfloat16))
    calls = core.dispatch_stats()["operators"]
    assert calls["aten::_copy_from"]["calls"] == 2  # the test's own conversions
    assert calls["aten::embedding_dense_backward"] == {"route": "delegate", "calls": 1}


def test_written_arguments_stay_the_callers() -> None:
    base = torch.zeros(4, 4, device="chip", dtype=torch.bfloat16)
    view, index = base[:, 1:3], same_index("chip")
    result = view.index_add_(0, index, torch.ones(COUNT, 2, device="chip", dtype=torch.bfloat16))
    assert result is view and base.cpu()[0].tolist() == [0, 4992, 4992, 0] and not base[1:].any()
    out = torch.empty(0, device="chip", dtype=torch.float16)
    x = torch.ones(1, 2, 2, 2, device="chip", dtype=torch.float16)
    assert torch._C._nn.avg_pool3d(x, 2, out=out) is out and out.cpu().tolist() == [[[[1.0]]]]
    with pytest.raises(RuntimeError, match="out"):
        torch._C._nn.avg_pool3d(x, 2, out=torch.empty(1, 1, 1, 1, device="chip", dtype=torch.int64))


def test_mixed_dtypes_are_the_cpus() -> None:
    layer = torch.nn.LayerNorm(8).to("chip")
    layer(torch.randn(COUNT, 8, device="chip", dtype=torch.bfloat16)).sum().backward()
    assert layer.bias.grad is not None and layer.bias.grad.dtype == torch.float32
    assert layer.bias.grad.cpu().tolist() == [5000.0] * 8
    target = torch.zeros(4, device="chip")
    with pytest.raises(RuntimeError, match="got Float for the destination and BFloat16 for the source"):
        target.index_put_(
            (same_index("chip"),), torch.ones((), device="chip", dtype=torch.bfloat16), accumulate=True
        )
    with pytest.raises(RuntimeError, match=r"self \(Float\) and source \(BFloat16\) must have the same"):
        target.index_add_(0, same_index("chip")[:1], torch.ones(1, device="chip", dtype=torch.bfloat16))


def test_replays_sum_in_float32() -> None:
    weight = torch.zeros(4, 2, device="chip", dtype=torch.bfloat16)
    source = torch.ones(COUNT, 2, device="chip", dtype=torch.bfloat16)
    graph, summed = capture(lambda: weight.index_add(0, same_index("chip"), source))
    source.fill_(2)
    graph.replay()
    assert summed.cpu()[0].tolist() == [9984.0, 9984.0] and not summed[1:].any()
    graph, _ = capture(lambda: weight.index_add_(0, same_index("chip"), source))
    weight.zero_()
    graph.replay()
    assert weight.cpu()[0].tolist() == [9984.0, 9984.0]


# ---- dtypes that CUDA has and the CPU lacks

COMPLEX_NANSUM = {"nansum", "nanmean"}  # the CPU has none
RANDOM = {"nn.functional.rrelu"}
ATTENTION = {"torch.ops.aten._flash_attention_forward", "torch.ops.aten._efficient_attention_forward"}
WIDER = {
    torch.bool: torch.uint8,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
}


def wider(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().to(WIDER.get(value.dtype, value.dtype))
    if isinstance(value, torch.dtype):
        return WIDER.get(value, value)
    return type(value)(map(wider, value)) if isinstance(value, list | tuple) else value


def only_on_cuda() -> list[tuple[Any, torch.dtype]]:
    from torch.testing._internal.common_methods_invocations import op_db

    return [
        (op, dtype)
        for op in op_db
        if op.full_name not in ATTENTION
        for dtype in sorted(set(op.dtypesIfCUDA) - set(op.dtypes), key=str)
        # PyTorch takes bfloat16 FFTs on CUDA alone, before it asks for the kernel of any device.
        if not (op.name.startswith("fft.") and dtype == torch.bfloat16)
    ]


def test_every_dtype_of_cuda_is_computed_and_rounded_once() -> None:
    """Results of each part of a composite are rounded."""
    failures = []
    pairs = only_on_cuda()
    assert len(pairs) > 80
    for op, dtype in pairs:
        torch.manual_seed(0)
        for sample in itertools.islice(op.sample_inputs("chip", dtype, requires_grad=False), 0, 5, 2):
            try:
                found = op.op(sample.input, *sample.args, **sample.kwargs)
            except Exception as error:
                failures.append(f"{op.full_name} {dtype}: {error}")
                break
            if dtype not in WIDER or op.full_name in RANDOM or not isinstance(found, Tensor):
                continue
            keywords = {name: wider(value) for name, value in sample.kwargs.items()}
            if op.name in COMPLEX_NANSUM and dtype.is_complex:
                continue
            expected = op.op(wider(sample.input), *wider(sample.args), **keywords).to(found.dtype)
            spacing = 2.0 ** (-7 if found.dtype == torch.bfloat16 else -10)
            if "conv" in op.name:  # PyTorch composes it of three real ones, whose rounded results cancel
                spacing *= 2.0 + float(expected.abs().max())
            found, expected = (
                each.to_dense() if each.layout != torch.strided else each for each in (found, expected)
            )
            number = torch.complex128 if found.is_complex() else torch.float64
            if not torch.allclose(
                found.cpu().to(number),
                expected.to(number),
                rtol=2 * spacing,
                atol=2 * spacing,
                equal_nan=True,
            ):
                failures.append(f"{op.full_name} {dtype}: {found.cpu()} is not {expected}")
    assert not failures, "\n".join(failures)


def test_a_dtype_that_is_asked_for_is_computed_wider() -> None:
    for result in (
        torch.ones(3, device="chip").sum(dtype=torch.chalf),
        torch.ones(3, device="chip").sum(0, dtype=torch.chalf),
    ):
        assert result.dtype == torch.complex32 and result.item() == 3


def test_nansum_of_complex_numbers() -> None:
    nan = float("nan")
    numbers = torch.tensor([[1 + 2j, complex(nan, 1)], [complex(3, nan), 4j]], device="chip")
    assert numbers.nansum().item() == 1 + 6j
    assert numbers.nansum(0, keepdim=True).cpu().tolist() == [[1 + 2j, 4j]]
    out = torch.empty(2, dtype=torch.complex128, device="chip")
    assert torch.nansum(numbers, 1, dtype=torch.complex128, out=out) is out and out.cpu().tolist() == [
        1 + 2j,
        4j,
    ]


def test_fourier_transforms_of_float16() -> None:
    x = torch.arange(8.0, dtype=torch.float16, device="chip").requires_grad_()
    spectrum = torch.fft.rfft(x)
    expected = torch.fft.rfft(torch.arange(8.0))
    assert spectrum.dtype == torch.complex32 and spectrum.shape == expected.shape
    assert torch.equal(torch.view_as_real(spectrum).cpu(), torch.view_as_real(expected).half())
    back = torch.fft.irfft(spectrum)
    back.sum().backward()
    assert back.dtype == torch.float16 and torch.allclose(back, x, atol=1e-2)
    assert x.grad is not None and x.grad.cpu().tolist() == [1.0] * 8
    out = torch.empty(0, dtype=torch.complex32, device="chip")
    with torch.inference_mode():
        assert torch.fft.fft(x.detach(), out=out) is out and out.shape == (8,)
    with pytest.raises(RuntimeError, match="Unsupported dtype BFloat16"):
        torch.fft.fft(x.detach().bfloat16())


def test_gradients_of_dtypes_of_cuda() -> None:
    x = torch.tensor([0.5, -1.0], dtype=torch.complex32, device="chip").requires_grad_()
    (x.tanh() + x.sigmoid()).abs().sum().backward()
    wide = x.detach().cpu().to(torch.complex64).requires_grad_()
    (wide.tanh() + wide.sigmoid()).abs().sum().backward()
    assert x.grad is not None and wide.grad is not None and x.grad.dtype == torch.complex32
    assert torch.allclose(x.grad.cpu().to(torch.complex64), wide.grad, atol=5e-3)
    pooled = torch.ones(1, 4, 4, 4, device="chip", dtype=torch.float16).requires_grad_()
    F.avg_pool3d(pooled, 2).sum().backward()
    assert pooled.grad is not None and pooled.grad.unique().cpu().tolist() == [0.125]


def test_every_rule_names_an_operator() -> None:
    kernels = {
        name.split("::")[1].split(".")[0].removesuffix("_")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and any(
            torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
            for key in ("CPU", "SparseCPU", "SparseCsrCPU")
        )
    }
    named = {name.removeprefix("sparse ").removeprefix("transposed ") for name in compute_dtypes.rules()}
    assert named - set(compute_dtypes.CONVOLUTIONS) <= kernels


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "draw",
    [
        torch._standard_gamma,
        torch._sample_dirichlet,
        lambda x: torch.binomial(x.round() + 4, x / 4),
        lambda x: torch._standard_gamma_grad(x, x * 2),
    ],
    ids=["gamma", "dirichlet", "binomial", "gradient of gamma"],
)
def test_16_bit_samples_are_those_of_float32_rounded(dtype: torch.dtype, draw: Any) -> None:
    shape = torch.rand(64, device="chip").add_(0.5).to(dtype)
    torch.manual_seed(3)
    found = draw(shape)
    torch.manual_seed(3)
    expected = draw(shape.float())
    assert found.dtype == dtype and torch.equal(found, expected.to(dtype))
    assert torch.distributions.Beta(shape, shape).sample().dtype == dtype
