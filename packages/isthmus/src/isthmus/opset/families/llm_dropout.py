"""Fused dropout, residual addition and normalization."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset.families._common import size_of
from isthmus.opset.operator import ONLY_NAN, Operator, accumulated, extension
from isthmus.opset.sampling import Case, Maker

_FORWARD = accumulated(64, "two blocked sums over the row, of a sum that may cancel")
_BACKWARD = accumulated(96, "two blocked sums over the row, and over the batch")
_EPS = 1e-5
_PARTS_OF = ("residual", "bias", "rowscale", "layerscale", "mask")
# Optional arguments, p, eps, rms, wide_sum: each argument without and with most of the others, p with and without.
_COMBINED: tuple[tuple[tuple[str, ...], float, float, bool, bool], ...] = (
    (("rowscale",), 0.0, 0.3, False, False), (("layerscale", "mask"), 0.75, 1e-2, False, True),
    (("residual", "mask"), 0.5, 1e-3, True, False), (("rowscale", "bias"), 0.0, 0.05, True, True),
    (("residual", "layerscale"), 0.0, 1e-4, False, True), (("mask", "bias", "rowscale"), 0.0, 1e-3, False, False),
    (("residual", "mask"), 1.0, 1e-3, True, False), (("layerscale", "mask", "residual"), 1.0, 1e-3, False, True),
)  # fmt: skip


def _rows(m: Maker) -> Iterator[tuple[str, dict[str, Any]]]:
    """(kind, arguments of the forward operator), with and without optional arguments."""
    wide = m.compute_dtype
    for kind, shape, layout, full, rms in (
        ("contiguous", (2, 17, 35), "contiguous", True, False),
        ("contiguous", (2, 17, 35), "contiguous", True, True),
        ("contiguous", (3, 64), "contiguous", False, False),
        ("contiguous", (3, 13), "contiguous", False, True),
        ("strided", (5, 19), "transposed", True, False),
        ("contiguous", (2, 1, 3, 2, 2, 13), "contiguous", True, False),
        ("large", (3, 1031), "contiguous", True, True),
        ("zero-size", (0, 7), "contiguous", True, False),
        *((("large", (8, 8209), "contiguous", True, False),) if m.dtype == "float32" else ()),
    ):
        n = shape[-1]
        extra: dict[str, Any] = dict.fromkeys(("residual", "bias", "rowscale", "layerscale", "mask"))
        if full:
            extra = {
                "residual": m.tensor(*shape, dtype=wide if rms else m.dtype, layout=layout), "bias": m.tensor(n),
                "rowscale": m.tensor(*shape[:-1], low=0.1), "layerscale": m.tensor(n, low=0.1),
                "mask": m.mask(*shape, share=0.8),
            }  # fmt: skip
        yield kind, {
            "input": m.tensor(*shape, layout=layout, low=-1.7), **extra, "weight": m.tensor(n),
            "p": 0.2 if full else 0.0, "eps": _EPS, "rms": rms, "wide_sum": not full,
        }  # fmt: skip
    if m.dtype != "float64":  # the reference is not more precise
        # A mean far from 0 exposes E[x^2] - E[x]^2.
        extra = dict.fromkeys(_PARTS_OF)
        far = {
            "input": m.tensor(3, 67, low=999, high=1001),
            **extra,
            "weight": m.tensor(67),
            "p": 0.0,
            "eps": _EPS,
        }
        yield "contiguous", {**far, "rms": False, "wide_sum": True}
    yield from _combined(m)


def _combined(m: Maker) -> Iterator[tuple[str, dict[str, Any]]]:
    for i, (parts, p, eps, rms, wide_sum) in enumerate(_COMBINED):
        shape, n = (2, 3, 13), 13
        values: dict[str, Any] = {
            "residual": m.tensor(*shape, dtype=m.compute_dtype if wide_sum else m.dtype), "bias": m.tensor(n),
            "rowscale": m.tensor(*shape[:-1]), "layerscale": m.tensor(n),
            "mask": m.mask(*shape, share=0.7 if p < 1 else 0.0),
        }  # fmt: skip
        extra = {name: values[name] if name in parts else None for name in _PARTS_OF}
        # Small rows expose a misplaced epsilon.
        low, high = ((-1.7, 3.1), (-0.02, 0.05), (-3e4, 6e4))[i % 3]
        yield "special", {
            "input": m.tensor(*shape, low=low, high=high), **extra, "weight": m.tensor(n), "p": p, "eps": eps,
            "rms": rms, "wide_sum": wide_sum,
        }  # fmt: skip


def _norms(m: Maker) -> Iterator[Case]:
    for kind, arguments in _rows(m):
        yield m.case(kind, **arguments)


def _gradients(m: Maker) -> Iterator[Case]:
    for i, (kind, given) in enumerate(_rows(m)):
        shape, wide, scaled = given["input"].shape, m.compute_dtype, given["layerscale"] is not None
        total = m.tensor(*shape, dtype=wide if given["rms"] or given["wide_sum"] else m.dtype)
        values = total.view.astype(np.float64)
        mean = np.zeros((*shape[:-1], 1)) if given["rms"] else values.mean(-1, keepdims=True)
        rstd = 1 / np.sqrt(((values - mean) ** 2).mean(-1, keepdims=True) + given["eps"])
        combined = kind == "special"
        added = i % 2 == 0 if combined else given["residual"] is not None
        yield m.case(
            kind, m.tensor(*shape), m.tensor(*shape, dtype=total.dtype) if added else None, total,
            given["input"] if scaled else None, given["weight"], given["rowscale"], given["layerscale"],
            given["mask"], m.values(mean, wide), m.values(rstd, wide), given["p"], given["rms"],
            given["bias"] is not None, given["residual"] is not None,
        )  # fmt: skip


def _scaled(values: Any, rowscale: Any, layerscale: Any, mask: Any, p: float) -> Any:
    values = values / (1 - p) * (1 if rowscale is None else rowscale.unsqueeze(-1))
    values = values if layerscale is None else values * layerscale
    return values if mask is None else values.masked_fill(~mask, 0)


def _norm(input: Any, residual: Any, weight: Any, bias: Any, rowscale: Any, layerscale: Any, mask: Any, p: float,
          eps: float, rms: bool, wide_sum: bool, magnitude: bool = False) -> Any:  # fmt: skip
    added = _scaled(input, rowscale, layerscale, mask, p)
    total = added if residual is None else added + residual
    mean = total.new_zeros(*total.shape[:-1], 1) if rms else total.mean(-1, keepdim=True)
    rstd = ((total - mean).square().mean(-1, keepdim=True) + eps).rsqrt()
    bias = 0 if bias is None else bias
    if not magnitude:
        return (total - mean) * rstd * weight + bias, total, mean, rstd
    # The sum and its distance to the mean may cancel; their terms do not.
    terms = added.abs() if residual is None else added.abs() + residual.abs()
    away = terms + (0 if rms else terms.mean(-1, keepdim=True))
    spread = 1 + rstd.square() * ((total - mean).abs() * away).mean(-1, keepdim=True)
    out = away * rstd * spread * weight.abs() + abs(bias)
    return out, terms, terms.mean(-1, keepdim=True), rstd * spread


def _gradient(grad: Any, grad_sum: Any, sum: Any, input: Any, weight: Any, rowscale: Any, layerscale: Any,
              mask: Any, mean: Any, rstd: Any, p: float, rms: bool, with_bias: bool, with_residual: bool,
              magnitude: bool = False) -> Any:  # fmt: skip
    hat, slope = (sum - mean) * rstd, grad * weight
    if magnitude:
        hat, slope, grad = (sum.abs() + mean.abs()) * rstd, slope.abs(), grad.abs()
    sign = 1 if magnitude else -1
    centre = 0 if rms else slope.mean(-1, keepdim=True)
    total = rstd * (slope + sign * centre + sign * hat * (slope * hat).mean(-1, keepdim=True))
    if grad_sum is not None:
        total = total + (grad_sum.abs() if magnitude else grad_sum)
    if magnitude:
        rowscale, layerscale, input = (
            None if each is None else each.abs() for each in (rowscale, layerscale, input)
        )
    width = weight.shape[0]
    scales = None
    if layerscale is not None:
        scales = (_scaled(total, rowscale, None, mask, p) * input).reshape(-1, width).sum(0)
    return (_scaled(total, rowscale, layerscale, mask, p), total if with_residual else None,
            (grad * hat).reshape(-1, width).sum(0), grad.reshape(-1, width).sum(0) if with_bias else None,
            scales)  # fmt: skip


_STATISTIC = "(*input.shape[:-1], 1)"
_SUM = "residual.dtype if residual is not None else accumulator(input) if wide_sum else input.dtype"
_PARTS = "Tensor? rowscale, Tensor? layerscale, Tensor? mask"

OPERATORS: list[Operator] = [
    extension(f"dropout_add_norm(Tensor input, Tensor? residual, Tensor weight, Tensor? bias, {_PARTS}, float p, "
              "float eps, bool rms, bool wide_sum) -> (Tensor out, Tensor sum, Tensor mean, Tensor rstd)",
              f"(input.shape, input.shape, {_STATISTIC}, {_STATISTIC})",
              f"(input.dtype, {_SUM}, accumulator(input), accumulator(input))", _norms, _FORWARD,
              differentiable="input residual weight bias layerscale", reference=_norm, magnitude=size_of(_norm),
              empty=False, resizable=True, special=ONLY_NAN),
    extension("dropout_add_norm_backward(Tensor grad, Tensor? grad_sum, Tensor sum, Tensor? input, Tensor weight, "
              f"{_PARTS}, Tensor mean, Tensor rstd, float p, bool rms, bool with_bias, bool with_residual) -> "
              "(Tensor grad_input, Tensor? grad_residual, Tensor grad_weight, Tensor? grad_bias, "
              "Tensor? grad_layerscale)",
              "(grad.shape, sum.shape if with_residual else None, weight.shape, weight.shape if with_bias else None, "
              "None if layerscale is None else weight.shape)",
              "(grad.dtype, sum.dtype if with_residual else None, accumulator(grad), "
              "accumulator(grad) if with_bias else None, None if layerscale is None else accumulator(grad))",
              _gradients, _BACKWARD, reference=_gradient, magnitude=size_of(_gradient),
              empty=False, resizable=True, special=ONLY_NAN),
]  # fmt: skip
