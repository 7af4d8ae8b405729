"""Compares the formulas of the decomposition route with PyTorch's own CPU kernels, call by call."""

# ruff: noqa: B008 (the tensors of each call are its own)

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

DTYPES = (torch.float64, torch.int64, torch.float32, torch.bfloat16, torch.bool, torch.uint8)
_RELATIVE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3}
_LEFT_OUT = ("svd_lowrank", "pca_lowrank", "jiterator")  # random ones, and ones only for CUDA


# Errors of PyTorch for arguments that it refuses, and NotImplementedError; others are faults of the tests.
REFUSALS = (RuntimeError, IndexError, ValueError)


class HarnessError(Exception):
    """A comparison itself failed."""


class Compared(TorchDispatchMode):
    """Runs each operator that has a formula by both, and records the differences.

    Args:
        formulas: functions by overload, as of ``python_decompositions()``.

    Attributes:
        calls: number of compared calls by overload.
        differences: descriptions by overload, one for each call that differs.
    """

    def __init__(self, formulas: dict[str, Callable[..., Any]]) -> None:
        super().__init__()
        self._formulas = formulas
        self.calls: Counter[str] = Counter()
        self.differences: dict[str, list[str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the kernel, and the formula on copies of the arguments."""
        kwargs = kwargs or {}
        name = func._schema.name + (f".{func._overloadname}" if func._overloadname != "default" else "")
        formula = self._formulas.get(name)
        if formula is None or torch.Tag.nondeterministic_seeded in func.tags:
            return func(*args, **kwargs)
        try:
            copies = tree_map_only(torch.Tensor, lambda t: t.clone(), (args, kwargs))
            tensors = tree_flatten(copies)[0]  # a formula may replace items of its lists
            before = _describe((args, kwargs))
        except Exception as error:
            raise HarnessError(name) from error
        try:
            expected = func(*args, **kwargs)
        except (*REFUSALS, TypeError) as error:
            if "not implemented for" not in str(error):  # formulas support more dtypes
                self._compare_refusal(name, formula, copies, before)
            raise
        try:
            got = formula(*copies[0], **copies[1])
        except Exception as error:
            self._count(name, before, f"{type(error).__name__}: {error}")
            return expected
        if got is not NotImplemented:
            try:
                difference = _difference((got, tensors), (expected, (args, kwargs)))
            except Exception as error:
                raise HarnessError(f"{name}: {before}") from error
            self._count(name, before, difference)
        return expected

    def _compare_refusal(self, name: str, formula: Callable[..., Any], copies: Any, before: str) -> None:
        try:
            accepted = formula(*copies[0], **copies[1]) is not NotImplemented
        except Exception:
            accepted = False
        self._count(name, before, "accepted, although the kernel raises an error" if accepted else "")

    def _count(self, name: str, before: str, difference: str) -> None:
        self.calls[name] += 1
        if difference:
            self.differences.setdefault(name, []).append(f"{before}: {difference}")


def _describe(values: Any) -> str:
    flat = tree_flatten(values)[0]
    shown = [
        f"{str(v.dtype).removeprefix('torch.')}{list(v.shape)}" if isinstance(v, torch.Tensor) else repr(v)
        for v in flat
    ]
    return ", ".join(shown)


def _difference(got: Any, expected: Any) -> str:
    """Describe the first difference of two results; tensors in float64, within the rounding of their dtype."""
    left, right = tree_flatten(got)[0], tree_flatten(expected)[0]
    if len(left) != len(right):
        return f"{len(left)} results, expected {len(right)}"
    for one, other in zip(left, right, strict=True):
        if not isinstance(other, torch.Tensor):
            continue
        if one is None:
            return "None, expected a tensor"
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return f"{one.dtype} {list(one.shape)}, expected {other.dtype} {list(other.shape)}"
        a, b = _real(one), _real(other)
        close = _RELATIVE.get(b.dtype, 0)
        if not torch.allclose(a.double(), b.double(), close, close, equal_nan=True) or (
            not close and not torch.equal(a, b)
        ):
            wrong = ~torch.isclose(a.double(), b.double(), close, close, equal_nan=True)
            return f"{a[wrong][:4].tolist()}, expected {b[wrong][:4].tolist()}"
    return ""


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """Return a strided tensor of real numbers with the same values."""
    dense = tensor if tensor.layout == torch.strided else tensor.to_dense()
    return torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense


def op_db_calls(dtype: torch.dtype, count: int) -> Iterator[Callable[[], Any]]:
    """Calls of PyTorch's operator samples, forward and, of floats, backward."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if dtype not in op.supported_dtypes("cpu") or op.name.startswith(_LEFT_OUT):
            continue
        grads = dtype.is_floating_point and op.supports_autograd
        for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=grads), count):
            yield lambda op=op, sample=sample: op.op(sample.input, *sample.args, **sample.kwargs)
            if op.inplace_variant and isinstance(sample.input, torch.Tensor):
                yield lambda op=op, sample=sample: op.inplace_variant(
                    sample.input.detach().clone(), *sample.args, **sample.kwargs
                )


def run(calls: Iterable[Callable[[], Any]], compared: Compared) -> None:
    """Make calls under the comparison, with gradients; those that PyTorch refuses are ignored."""
    for call in calls:
        with suppress(*REFUSALS), compared:
            found = [t for t in tree_flatten(call())[0] if isinstance(t, torch.Tensor) and t.requires_grad]
            if found:
                sum(_real(t).sum() for t in found).backward()


def special_calls(dtype: torch.dtype) -> Iterator[Callable[[], Any]]:
    """Calls of the pointwise operators at NaN, infinities, zeros and large and small numbers."""
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

    nan, inf = float("nan"), float("inf")
    points = torch.tensor(
        [
            nan,
            inf,
            -inf,
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            3.0,
            -3.0,
            20.5,
            -20.5,
            90.0,
            -90.0,
            1e30,
            -1e30,
            1e-30,
        ],
        dtype=dtype,
    )
    for op in op_db:
        if op.name.startswith(_LEFT_OUT) or (op.name == "imag" and not dtype.is_complex):
            continue
        if isinstance(op, UnaryUfuncInfo):
            given, _ = op.sample_kwargs("cpu", dtype, points)
            yield lambda op=op, given=given: op.op(
                points.clone().requires_grad_(op.supports_autograd), **given
            )
        elif isinstance(op, BinaryUfuncInfo):
            grid = torch.meshgrid(points, points, indexing="ij")
            yield lambda op=op, grid=grid: op.op(
                grid[0].clone().requires_grad_(op.supports_autograd), grid[1]
            )
    for name in ("celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu",
                 "logsigmoid", "mish", "relu6", "selu", "silu", "softplus", "softshrink", "softsign",
                 "tanhshrink"):  # fmt: skip
        yield lambda name=name: getattr(F, name)(points.clone().requires_grad_())
    for low, high in ((1.0, -1.0), (-0.5, 0.5), (0.0, 0.0)):
        yield lambda low=low, high=high: F.hardtanh(points.clone().requires_grad_(), low, high)
    for alpha in (-0.5, 0.0, 2.0):
        yield lambda alpha=alpha: F.elu(points.clone().requires_grad_(), alpha)
        yield lambda alpha=alpha: F.celu(points.clone().requires_grad_(), alpha)
        yield lambda alpha=alpha: F.threshold(points.clone().requires_grad_(), alpha, nan)
        yield lambda alpha=alpha: F.hardshrink(points.clone().requires_grad_(), alpha)
        yield lambda alpha=alpha: F.softshrink(points.clone().requires_grad_(), abs(alpha))
        yield lambda alpha=alpha: F.prelu(points.clone().requires_grad_(), points.new_tensor([alpha]))
        yield lambda alpha=alpha: F.softplus(points.clone().requires_grad_(), alpha, 1.0)
    for eps in (None, 0.0, 0.3, -1.0, 0.6):
        yield lambda eps=eps: torch.logit(points.clone().requires_grad_(), eps)
    for count in (0, 1, 2):
        for correction in (0, 1, 2, 1.5):
            yield lambda n=count, c=correction: torch.std(points[5 : 5 + n].clone(), correction=c)
            yield lambda n=count, c=correction: torch.var_mean(points[5 : 5 + n].clone(), correction=c)
    for p in (0.0, 0.5, 1.0, 2.0, 3.0, inf, -inf):
        yield lambda p=p: torch.dist(points[3:].clone().requires_grad_(), points[3:].flip(0), p)
        yield lambda p=p: torch.renorm(points[3:15].reshape(4, 3), p, 0, 2.0)
    yield lambda: torch.aminmax(points)
    yield lambda: torch.aminmax(points[3:].reshape(3, 5), dim=1)
    yield lambda: torch.nansum(points)


def loss_calls(dtype: torch.dtype) -> Iterator[Callable[[], Any]]:
    """Calls of losses and of operators with labels or indices, with those at and beyond the ends."""
    maker = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=maker).to(dtype).requires_grad_()

    labels = [[0, -1, -1, -1], [3, 0, -1, 1], [-1, 0, 1, 2], [2, 2, 0, 3], [0, 4, -1, 0], [0, -2, 1, 1]]
    for reduction in ("none", "mean", "sum"):
        for row in (*labels, labels[:4], labels[3]):
            rows = torch.tensor(row)
            x = drawn(*rows.shape)
            yield lambda x=x, y=rows, r=reduction: F.multilabel_margin_loss(x, y, reduction=r)
            yield lambda x=x, y=rows, r=reduction: F.multilabel_margin_loss(x[None], y[None], reduction=r)
        for shape in ((0, 4), (3, 0), (0,)):
            if shape == (0, 4) and reduction != "none":  # the kernel does not write these
                continue
            y = torch.zeros(shape, dtype=torch.int64)
            yield lambda x=drawn(*shape), y=y, r=reduction: F.multilabel_margin_loss(x, y, reduction=r)
        for target in ([0, 3, 1], [-1, 0, 0], [4, 0, 0], [2, 2, 2]):
            y = torch.tensor(target)
            for weight, p, margin in ((None, 1, 1.0), (torch.rand(4).to(dtype), 2, 0.25), (None, 2, -1.0)):
                yield lambda x=drawn(3, 4), y=y, r=reduction, w=weight, p=p, m=margin: F.multi_margin_loss(
                    x, y, p, m, w, reduction=r
                )
            for ignored in (-100, 2, -1):
                yield lambda x=drawn(3, 4), y=y, r=reduction, i=ignored: F.nll_loss(
                    x, y, torch.arange(4).to(dtype), ignore_index=i, reduction=r
                )
                yield lambda x=drawn(1, 4, 3, 1), y=y, r=reduction, i=ignored: F.nll_loss(
                    x, y.view(1, 3, 1), torch.arange(4).to(dtype), ignore_index=i, reduction=r
                )
                yield lambda x=drawn(3, 4), y=y, r=reduction, i=ignored: F.cross_entropy(
                    x, y, ignore_index=i, reduction=r, label_smoothing=0.1
                )
        ends = torch.tensor([0.0, 1.0, 0.5, 1.0, 0.0], dtype=dtype)
        yield lambda r=reduction, e=ends: F.binary_cross_entropy(
            e.clone().requires_grad_(), e.flip(0), reduction=r
        )
        huge = torch.tensor([1e3, -1e3, 0.0, 200.0, -90.0], dtype=dtype)
        yield lambda r=reduction, h=huge, e=ends: F.binary_cross_entropy_with_logits(
            h.clone().requires_grad_(), e, e, reduction=r, pos_weight=h.abs()
        )
        signs = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0], dtype=dtype)
        yield lambda r=reduction, h=huge, s=signs: F.soft_margin_loss(
            h.clone().requires_grad_(), s, reduction=r
        )
        yield lambda r=reduction, h=huge, s=signs: F.hinge_embedding_loss(
            h.clone().requires_grad_(), s, reduction=r
        )
        for beta in (0.0, 0.5, 1e3):
            yield lambda r=reduction, h=huge, e=ends, b=beta: F.smooth_l1_loss(
                h.clone().requires_grad_(), e, reduction=r, beta=b
            )
            yield lambda r=reduction, h=huge, e=ends, b=beta: F.huber_loss(
                h.clone().requires_grad_(), e, reduction=r, delta=b + 0.25
            )
    for index in ([0, -1], [0, 4], [3, -4], [-5, 0], [2, 2]):
        i = torch.tensor(index)
        yield lambda i=i: torch.take(drawn(4), i)
        yield lambda i=i: torch.index_copy(drawn(4), 0, i, drawn(2))
        yield lambda i=i: drawn(4).detach().index_copy_(0, i, drawn(2).detach())
        for reduce in ("prod", "mean", "amax", "amin"):
            for own in (True, False):
                yield lambda i=i, r=reduce, o=own: torch.index_reduce(
                    drawn(4).detach(), 0, i, drawn(2).detach(), r, include_self=o
                )
                yield (
                    lambda i=i, r=reduce, o=own: (
                        drawn(4).detach().index_reduce_(0, i, drawn(2).detach(), r, include_self=o)
                    )
                )
        for reduce in ("add", "multiply"):
            yield lambda i=i, r=reduce: drawn(4).detach().scatter_(0, i, drawn(2).detach(), reduce=r)
            yield lambda i=i, r=reduce: drawn(4).detach().scatter_(0, i, 2.5, reduce=r)
        yield lambda i=i: F.max_unpool1d(drawn(1, 1, 2), i.view(1, 1, 2), 2)
        yield lambda i=i: F.max_unpool2d(drawn(1, 1, 1, 2), i.view(1, 1, 1, 2), (1, 2))
        yield lambda i=i: F.max_unpool3d(drawn(1, 1, 1, 1, 2), i.view(1, 1, 1, 1, 2), (1, 1, 2))
        yield lambda i=i: torch.index_put(drawn(4), (i,), drawn(2), accumulate=True)


def shape_calls(dtype: torch.dtype) -> Iterator[Callable[[], Any]]:
    """Calls of padding, resampling and folding at sizes of 0 and 1, and with given scales."""

    def made(*shape: int) -> torch.Tensor:
        count = torch.Size(shape).numel()
        return (torch.arange(count) * 0.37 % 1).to(dtype).reshape(shape).requires_grad_()

    for rank, modes in ((1, ("linear", "nearest", "nearest-exact")),
                        (2, ("bilinear", "bicubic", "nearest", "nearest-exact")),
                        (3, ("trilinear", "nearest", "nearest-exact"))):  # fmt: skip
        for mode in modes:
            for corners in (None,) if mode.startswith("nearest") else (False, True):
                for size in (1, 2, 5):
                    for to in (1, 3, 7):
                        yield lambda r=rank, m=mode, c=corners, s=size, t=to: F.interpolate(
                            made(2, 3, *[s] * r), [t] * r, mode=m, align_corners=c
                        )
                    for scale in (0.6, 1.7, 2.0):
                        for again in (True, False):
                            yield lambda r=rank, m=mode, c=corners, s=size, k=scale, a=again: F.interpolate(
                                made(2, 3, *[s] * r), scale_factor=[k] * r, mode=m, align_corners=c,
                                recompute_scale_factor=a,
                            )  # fmt: skip
        for batch in (0, 2):
            for mode in ("reflect", "replicate", "circular"):
                yield lambda r=rank, b=batch, m=mode: F.pad(made(b, 2, *[4] * r), [1, 2] * r, mode=m)
            for out in (1, 3, 7):
                pool = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[rank - 1]
                yield lambda r=rank, b=batch, p=pool, o=out: p(made(b, 2, *[5] * r), o)
    for shape in ((0, 4, 2, 2), (1, 4, 0, 2), (2, 4, 3, 1)):
        yield lambda s=shape: F.pixel_shuffle(made(*s), 2)
        yield lambda s=shape: F.channel_shuffle(made(*s).detach(), 2)
        yield lambda s=shape: F.glu(made(*s), 1)
        yield lambda s=shape: torch.cumprod(made(*s), 2)
        yield lambda s=shape: torch.cumprod(made(*s), -1, dtype=torch.float32)
    for size, step in ((1, 1), (2, 1), (3, 2), (4, 4)):
        yield lambda n=size, k=step: made(2, 7).unfold(1, n, k)


def formulas_in_use() -> dict[str, Callable[..., Any]]:
    """The formulas that the decomposition route of this process's chip takes."""
    from isthmus import _C
    from isthmus.chip.registration import python_decompositions

    routes = _C.routes()
    return {
        name: formula
        for name, formula in python_decompositions().items()
        if routes.get(name, ("",))[0] == "decomposition"
    }


def differences(calls: str, dtype: str, *options: Any) -> tuple[int, dict[str, list[str]]]:
    """Return the number of formulas compared in the calls of a function of this module, and their differences."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    compared = Compared(formulas_in_use())
    run(globals()[calls](getattr(torch, dtype), *options), compared)
    return len(compared.calls), compared.differences
