"""CUDA's alerts under torch.use_deterministic_algorithms, held against PyTorch's documentation and its own tests."""

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from isthmus import _C, shim
from isthmus.shim import nondeterminism
from isthmus_common.patches import Scope

D = "cuda"
Call = Callable[[], Any]


class Case(NamedTuple):
    """A call, prepared before deterministic algorithms are on, and the name that CUDA alerts with; "" for none."""

    make: Callable[[], Call]
    caller: str = ""


def x(*shape: int, **kwargs: Any) -> torch.Tensor:
    return torch.randn(shape, device=D, requires_grad=True, **kwargs)


def backward(forward: Callable[[], torch.Tensor]) -> Callable[[], Call]:
    """The backward pass alone: its forward pass is not under deterministic algorithms."""

    def make() -> Call:
        result = forward()
        return lambda: result.backward(torch.ones_like(result), retain_graph=True)

    return make


def both(forward: Callable[[], torch.Tensor]) -> Callable[[], Call]:
    """The forward and the backward pass under deterministic algorithms."""
    return lambda: lambda: forward().sum().backward()


def call(function: Call) -> Callable[[], Call]:
    return lambda: function


def index(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=D)


def resized(mode: str, *shape: int, **kwargs: Any) -> Callable[[], torch.Tensor]:
    return lambda: F.interpolate(x(1, 2, *shape), size=12, mode=mode, align_corners=False, **kwargs)


def padded(mode: str, dims: int) -> Callable[[], torch.Tensor]:
    return lambda: F.pad(x(1, 2, *(4,) * dims), (1, 2) * dims, mode=mode)


def pooled(layer: nn.Module, *shape: int) -> Callable[[], torch.Tensor]:
    return lambda: layer(x(*shape))


def unpooled(layer: nn.Module, *shape: int) -> Callable[[], Call]:
    return lambda: (
        lambda: layer(torch.randn(shape, device=D), torch.zeros(shape, dtype=torch.int64, device=D))
    )


def ctc() -> torch.Tensor:
    return F.ctc_loss(
        x(50, 3, 15), torch.randint(1, 14, (3, 30), device=D), [50, 50, 50], [30, 25, 20], reduction="sum"
    )


def bag(mode: str) -> Callable[[], torch.Tensor]:
    return lambda: nn.EmbeddingBag(4, 3, mode=mode, device=D)(torch.randint(0, 3, (4, 3), device=D))


def sampled(
    dims: int, mode: str = "bilinear", align: bool = False, **kwargs: Any
) -> Callable[[], torch.Tensor]:
    def forward() -> torch.Tensor:
        grid = torch.zeros(1, *(1,) * dims, dims, device=D, **kwargs)
        return F.grid_sample(x(1, 1, *(2,) * dims, **kwargs), grid, mode, align_corners=align)

    return forward


def loss(dims: int, reduction: str) -> Callable[[], Call]:
    def forward() -> torch.Tensor:
        target = torch.zeros((2, *(5,) * dims), dtype=torch.int64, device=D)
        return F.nll_loss(x(2, 3, *(5,) * dims), target, reduction=reduction)

    return call(forward)


def put(accumulate: bool) -> Callable[[], Call]:
    return call(lambda: torch.zeros(10, device=D).put_(index(0, 0), torch.ones(2, device=D), accumulate))


def reduced(reduce: str) -> Callable[[], Call]:
    return call(
        lambda: torch.zeros(4, device=D).scatter_reduce(0, index(0, 0), torch.ones(2, device=D), reduce)
    )


# The keys are documented names. Cases without a caller are calls that CUDA computes without an alert.
DOCUMENTED: dict[str, list[Case]] = {
    "torch.nn.AvgPool3d": [
        Case(backward(pooled(nn.AvgPool3d(3), 2, 3, 3, 3)), "avg_pool3d_backward_cuda"),
        Case(backward(pooled(nn.AvgPool3d(2), 1, 1, 4, 4, 4)), "avg_pool3d_backward_cuda"),
        Case(backward(pooled(nn.AvgPool2d(3), 2, 3, 3))),
    ],
    "torch.nn.AdaptiveAvgPool2d": [
        Case(backward(pooled(nn.AdaptiveAvgPool2d(3), 2, 3, 3)), "adaptive_avg_pool2d_backward_cuda"),
        Case(backward(pooled(nn.AdaptiveAvgPool2d(2), 2, 1, 5, 5)), "adaptive_avg_pool2d_backward_cuda"),
        Case(backward(pooled(nn.AdaptiveAvgPool2d(1), 2, 3, 3))),  # a mean
    ],
    "torch.nn.AdaptiveAvgPool3d": [
        Case(backward(pooled(nn.AdaptiveAvgPool3d(3), 2, 3, 3, 3)), "adaptive_avg_pool3d_backward_cuda")
    ],
    "torch.nn.AdaptiveMaxPool2d": [
        Case(backward(pooled(nn.AdaptiveMaxPool2d(3), 2, 3, 3)), "adaptive_max_pool2d_backward_cuda")
    ],
    "torch.nn.FractionalMaxPool2d": [
        Case(
            backward(pooled(nn.FractionalMaxPool2d(2, output_ratio=0.5), 2, 3, 3, 3)),
            "fractional_max_pool2d_backward_cuda",
        )
    ],
    "torch.nn.FractionalMaxPool3d": [
        Case(
            backward(pooled(nn.FractionalMaxPool3d(2, output_ratio=0.5), 2, 3, 3, 3, 3)),
            "fractional_max_pool3d_backward_cuda",
        )
    ],
    "torch.nn.MaxUnpool1d": [Case(unpooled(nn.MaxUnpool1d(3, 1), 1, 1, 7), "max_unpooling2d_forward_out")],
    "torch.nn.MaxUnpool2d": [Case(unpooled(nn.MaxUnpool2d(3, 1), 1, 1, 7, 7), "max_unpooling2d_forward_out")],
    "torch.nn.MaxUnpool3d": [
        Case(unpooled(nn.MaxUnpool3d(3, 1), 1, 1, 7, 7, 7), "max_unpooling3d_forward_out")
    ],
    "torch.nn.functional.interpolate": [
        Case(backward(resized("linear", 4)), "upsample_linear1d_backward_out_cuda"),
        Case(backward(resized("bilinear", 4, 4)), "upsample_bilinear2d_backward_out_cuda"),
        Case(backward(resized("bicubic", 4, 4)), "upsample_bicubic2d_backward_out_cuda"),
        Case(backward(resized("trilinear", 4, 4, 4)), "upsample_trilinear3d_backward_out_cuda"),
        Case(backward(resized("bilinear", 4, 4, antialias=True)), "upsample_bilinear2d_aa_backward_out_cuda"),
        Case(backward(resized("bicubic", 4, 4, antialias=True)), "upsample_bicubic2d_aa_backward_out_cuda"),
        Case(both(resized("bilinear", 4, 4))),  # PyTorch decomposes these two
        Case(both(resized("trilinear", 4, 4, 4))),
        Case(backward(lambda: F.interpolate(x(1, 2, 4, 4), size=12))),
    ],
    "torch.nn.ReflectionPad1d": [Case(backward(padded("reflect", 1)), "reflection_pad1d_backward_out_cuda")],
    "torch.nn.ReflectionPad2d": [Case(backward(padded("reflect", 2)))],  # libtorch_cuda has no such alert
    "torch.nn.ReflectionPad3d": [Case(backward(padded("reflect", 3)), "reflection_pad3d_backward_out_cuda")],
    "torch.nn.NLLLoss": [
        Case(loss(2, "mean"), "nll_loss2d_forward_out_cuda_template"),
        Case(loss(2, "sum"), "nll_loss2d_forward_out_cuda_template"),
        Case(loss(3, "mean"), "nll_loss2d_forward_out_cuda_template"),
        Case(loss(2, "none")),
        Case(loss(0, "mean")),
    ],
    "torch.nn.CTCLoss": [Case(backward(ctc), "ctc_loss_backward_gpu"), Case(call(ctc))],
    "torch.nn.EmbeddingBag": [
        Case(backward(bag("max")), "embedding_bag_backward_cuda_max"),
        Case(backward(bag("sum"))),
        Case(backward(bag("mean"))),
    ],
    "torch.Tensor.put_": [
        Case(put(False), "put_"),
        Case(put(True), "put_"),
        Case(call(lambda: torch.zeros(3, device=D).put(index(0), torch.ones(1, device=D), True)), "put_"),
    ],
    "torch.histc": [
        Case(call(lambda: torch.histc(torch.rand(5, device=D), 3)), "_histc_cuda with floating point input"),
        Case(call(lambda: torch.rand(0, device=D).histc(3)), "_histc_cuda with floating point input"),
        Case(call(lambda: torch.histc(index(1, 2, 2), 3))),
    ],
    "torch.bincount": [
        Case(call(lambda: torch.bincount(index(0, 1), torch.ones(2, device=D))), "_bincount_cuda"),
        Case(call(lambda: index(0, 1).bincount(torch.ones(2, device=D))), "_bincount_cuda"),
        Case(call(lambda: torch.bincount(index(0, 1)))),
    ],
    "torch.median": [
        Case(call(lambda: torch.rand(5, device=D).median(0)), "median CUDA with indices output"),
        Case(
            call(lambda: torch.nanmedian(torch.rand(2, 5, device=D), -1)), "median CUDA with indices output"
        ),
        Case(
            call(
                lambda: torch.median(torch.rand(5, device=D), 0, out=(torch.empty((), device=D), index(0)[0]))
            ),
            "median CUDA with indices output",
        ),
        Case(call(lambda: torch.rand(5, device=D).median())),
        Case(call(lambda: torch.rand(5, device=D).nanmedian())),
    ],
    "torch.nn.functional.grid_sample": [
        Case(backward(sampled(2)), "grid_sampler_2d_backward_cuda"),
        Case(backward(sampled(3)), "grid_sampler_3d_backward_cuda"),
        Case(backward(sampled(2, "nearest", align=True)), "grid_sampler_2d_backward_cuda"),
        Case(backward(sampled(2, align=True)), "cudnn_grid_sampler_backward"),
        Case(backward(sampled(2, align=True, dtype=torch.bfloat16)), "grid_sampler_2d_backward_cuda"),
    ],
    "torch.Tensor.scatter_reduce": [
        Case(reduced("prod"), "scatter_reduce_cuda_prod_"),
        Case(
            call(
                lambda: torch.ones(4, device=D).scatter_reduce_(
                    0, index(0), torch.ones(1, device=D), "prod", include_self=False
                )
            ),
            "scatter_reduce_cuda_prod_",
        ),
        *(Case(reduced(reduce)) for reduce in ("sum", "mean", "amax", "amin")),
    ],
    "torch.cumsum": [  # documented until 2.13; libtorch_cuda has no such alert
        Case(call(lambda: torch.rand(5, device=D).cumsum(0))),
        Case(call(lambda: torch.rand(5, dtype=torch.complex64, device=D).cumsum(0))),
    ],
    "torch.Tensor.resize_": [
        Case(call(lambda: torch.rand(5, device=D).resize_(7)))
    ],  # quantized on the CPU only
}

# Calls that the documentation does not name, and the alerts that CUDA's kernels have for some of them.
OTHERS = [
    Case(backward(pooled(nn.AdaptiveMaxPool3d(3), 2, 3, 3, 3))),
    Case(backward(pooled(nn.MaxPool2d(3), 2, 3, 3))),
    Case(backward(pooled(nn.MaxPool3d(3), 2, 3, 3, 3)), "max_pool3d_with_indices_backward_cuda"),
    Case(both(lambda: F.max_pool3d(x(2, 3, 3, 3), 3, return_indices=True)[0])),
    *(Case(backward(padded("replicate", n)), f"replication_pad{n}d_backward_cuda") for n in (1, 2, 3)),
    *(Case(both(padded("replicate", n))) for n in (1, 2, 3)),
    Case(
        call(lambda: torch.zeros(4, device=D).scatter_(0, index(0), torch.ones(1, device=D), reduce="add")),
        "scatter_reduce_cuda_kernel",
    ),
    Case(
        call(
            lambda: torch.ones(4, device=D).scatter(0, index(0), torch.ones(1, device=D), reduce="multiply")
        ),
        "scatter_reduce_cuda_kernel",
    ),
    Case(call(lambda: torch.zeros(4, device=D).scatter_(0, index(0), 1.0, reduce="add"))),
    Case(call(lambda: torch.zeros(4, device=D).scatter(0, index(0), torch.ones(1, device=D)))),
    Case(
        call(lambda: torch.zeros(4, device=D).index_reduce(0, index(0), torch.ones(1, device=D), "amax")),
        "index_reduce_cuda",
    ),
    Case(
        call(lambda: torch.zeros(4, device=D).index_reduce_(0, index(0), torch.ones(1, device=D), "mean")),
        "index_reduce_cuda",
    ),
    Case(call(lambda: torch.zeros(4, device=D).scatter_add(0, index(0, 0), torch.ones(2, device=D)))),
    Case(call(lambda: torch.zeros(4, device=D).index_add(0, index(0, 0), torch.ones(2, device=D)))),
    Case(call(lambda: torch.rand(5, device=D).kthvalue(2))),
]

CASES = {
    **{f"{name}-{i}": case for name, cases in DOCUMENTED.items() for i, case in enumerate(cases)},
    **{f"other-{i}": case for i, case in enumerate(OTHERS)},
}


@pytest.fixture(autouse=True)
def _undo() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def documented() -> set[str]:
    """The operators that PyTorch documents to raise with a CUDA tensor."""
    text = torch.use_deterministic_algorithms.__doc__ or ""
    _, found = text.split("operations will throw a", 1)
    items = re.split(r"\n\s+\* ", found.partition("In addition, several")[0])[1:]
    return {
        re.findall(r"`(torch\.[\w.]+)`", item)[0] for item in items if "MPS" not in item or "CUDA" in item
    }


def test_the_cases_are_those_of_pytorchs_documentation() -> None:
    assert documented() - set(DOCUMENTED) == set()
    assert set(DOCUMENTED) - documented() <= {"torch.cumsum", "torch.Tensor.resize_"}


def test_every_alert_has_a_case() -> None:
    expected = {alert.caller for alert in nondeterminism.ALERTS.values() if isinstance(alert.caller, str)}
    # Only a call of the overload with an output reaches it.
    assert expected - {case.caller for case in CASES.values()} == {"adaptive_avg_pool3d_backward_out_cuda"}


def test_no_alert_is_of_an_overload_that_is_called_without_a_stack() -> None:
    names = {name.partition(".")[0] for name in _C.unboxed_overloads()}
    assert not names & {name for name in nondeterminism.ALERTS if name not in ("aten::scatter",)}
    assert "aten::scatter.reduce" not in _C.unboxed_overloads()


@pytest.mark.parametrize("name", CASES)
def test_alerts(cuda: Scope, name: str) -> None:
    case = CASES[name]
    function = case.make()
    torch.use_deterministic_algorithms(True)
    if not case.caller:
        function()
    else:
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation") as caught:
            function()
        text = f"{case.caller} does not have a deterministic implementation, but you set 'torch.use_determin"
        assert str(caught.value).startswith(text)
    torch.use_deterministic_algorithms(True, warn_only=True)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        function()
    found = [str(each.message) for each in warned if "deterministic" in str(each.message)]
    # A library's kernel gets its shape from PyTorch's meta function, which alerts as well.
    callers = list(dict.fromkeys(text.partition(" does not have")[0] for text in found))
    assert callers == ([case.caller] if case.caller else [])


@pytest.mark.parametrize("name", ["torch.histc-0", "torch.nn.AvgPool3d-0", "torch.Tensor.scatter_reduce-0"])
def test_nothing_alerts_without_deterministic_algorithms(cuda: Scope, name: str) -> None:
    CASES[name].make()()


def test_the_chip_alone_is_deterministic() -> None:
    torch.use_deterministic_algorithms(True)
    for function in (
        lambda: torch.histc(torch.rand(5, device="chip"), 3),
        lambda: torch.rand(5, device="chip").median(0),
        lambda: torch.bincount(torch.tensor([0, 1], device="chip"), torch.ones(2, device="chip")),
    ):
        with shim.enter(), pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            function()
        function()


def test_tensors_of_the_cpu_have_no_alerts_of_cuda(cuda: Scope) -> None:
    torch.use_deterministic_algorithms(True)
    torch.rand(5).median(0)
    torch.bincount(torch.tensor([0, 1]), torch.ones(2))
    nn.AvgPool3d(3)(torch.rand(2, 3, 3, 3, requires_grad=True)).sum().backward()
