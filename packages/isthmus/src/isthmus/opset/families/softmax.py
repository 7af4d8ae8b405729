"""Softmax and log-softmax with their gradients, and attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.operator import ONLY_NAN, Operator, accumulated, op
from isthmus.opset.sampling import Array, Case, Maker

if TYPE_CHECKING:
    import torch

_SOFTMAX = accumulated(32, "the exponent's argument is rounded once; the sum is one of aten::sum")
_LOG = accumulated(16, "a difference of a logit, the maximum and a logarithm")
_EXTREME = (90.0, -90.0, 12.0, 1000.0, -1000.0, 30_000.0, -30_000.0)  # exp overflows, the quotient does not
_BACKWARD = accumulated(32, "a blocked sum over the row")
_HIDDEN = 60_000  # magnitude of a mask from which on a key is hidden: below the least of float16


def _rows(m: Maker) -> Iterator[tuple[str, Array, int, str]]:
    """(kind, logits, dimension, model)."""
    yield "contiguous", m.tensor(2, 3, 7, 17, low=-5, high=5), -1, "llama"
    yield "contiguous", m.tensor(9, 67, low=-30, high=30), 1, "llama"
    yield "contiguous", m.tensor(5, 7, 3), 1, "bert"
    yield "contiguous", m.tensor(5, 7, 3), 0, ""
    yield "strided", m.tensor(3, 11, 13, layout="transposed"), -1, "bert"
    yield "strided", m.tensor(7, 19, layout="sliced"), -1, "qwen_moe"
    yield "zero-size", m.tensor(0, 5), 1, ""
    yield "0-dim", m.tensor(), 0, ""
    if m.dtype in ("float32", "bfloat16"):
        yield "large", m.tensor(3, 1031, low=-8, high=8), -1, "llama"
    if m.dtype in dt.HALVES:  # a sum in a half stops growing
        yield "large", m.tensor(4133, 2, low=-1, high=1), 0, ""


def _nearly_equal(m: Maker) -> Array:
    """Rows of large numbers that are equal, or nearly, so that an added logarithm would be lost."""
    large = {"float16": 3e4, "float32": 1e7, "float64": 1e15}.get(m.dtype, 1e30)
    step = 1.0 if m.dtype in ("float32", "float64") else 0.0
    return m.values([[large] * 17, [large - step * (k % 5) for k in range(17)], [-large] * 17])


def _forward(m: Maker) -> Iterator[Case]:
    for kind, logits, dim, model in _rows(m):
        yield m.case(kind, logits, dim, False, model=model)
    yield m.case("special", _nearly_equal(m), -1, False)
    inf = float("inf")
    masked = [[0.5, -inf, 1.0, -inf], [-inf, -inf, -inf, 2.0], [float("nan"), 1, 2, 3], [inf, 0, 1, 2],
              [-inf, -inf, -inf, -inf]]  # fmt: skip
    yield m.case("special", m.values(masked), -1, False, model="llama")


def _safe(m: Maker) -> Iterator[Case]:
    for kind, logits, dim, model in _rows(m):
        yield m.case(kind, logits, dim, model=model)
    inf = float("inf")
    yield m.case("special", m.values([[0.5, -inf, 1.0], [-inf, -inf, -inf]]), -1, model="bert")
    least = float(ml_dtypes.finfo(dt.DTYPES[m.dtype].numpy).min)
    yield m.case("special", m.values([[least, -inf, least], [-inf, -inf, -inf]]), -1)


def _gradients(log: bool) -> Any:
    def samples(m: Maker) -> Iterator[Case]:
        for kind, logits, dim, model in _rows(m):
            wide = logits.view.astype(np.float64)
            power = np.exp(wide - wide.max(dim, keepdims=True, initial=-1e300) if wide.ndim else wide * 0)
            share = power / power.sum(dim, keepdims=True) if wide.ndim else power
            layout = {"strided": "transposed"}.get(kind, "contiguous")
            output = m.values(np.log(share) if log else share, layout=layout)
            yield m.case(kind, m.tensor(*logits.shape), output, dim, m.dtype, model=model)

    return samples


def _softmax_size(self: torch.Tensor, dim: int, half_to_float: bool = False, dtype: Any = None) -> Any:
    import torch

    spread = (self - self.amax(dim, keepdim=True)).abs() if self.numel() and self.dim() else self.abs()
    return torch.softmax(self, dim) * (1 + spread).nan_to_num(1, 1, 1)


def _log_size(self: torch.Tensor, dim: int, half_to_float: bool) -> Any:
    import torch

    if not self.numel() or not self.dim():
        return self.abs()
    distance = self - self.amax(dim, keepdim=True)  # exact, or rounded once
    return distance.abs() + 1 + torch.logsumexp(distance, dim, keepdim=True)


def _softmax_gradient(grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: Any) -> Any:
    product = (grad_output * output).abs()
    return product + output * product.sum(dim, keepdim=True)


def _log_gradient(grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: Any) -> Any:
    grad = grad_output.abs()
    return grad + output.exp() * (1 + output.abs()) * grad.sum(dim, keepdim=True)


def _attention(m: Maker) -> Iterator[Case]:
    for heads, length, keys, width, causal, model in (
        (3, 17, 17, 8, True, "llama"), (2, 7, 19, 12, False, "bert"), (1, 1, 5, 16, False, "llama"),
    ):  # fmt: skip
        query = m.tensor(2, heads, length, width)
        rest = [m.tensor(2, heads, keys, width) for _ in range(2)]
        yield m.case("contiguous", query, *rest, 0.0, causal, model=model)
    heads_first = [m.tensor(2, 3, 11, 8, layout="heads") for _ in range(3)]
    yield m.case("strided", *heads_first, 0.0, True, model="llama")
    for heads, length, keys, width, causal, scale in (
        (2, 7, 19, 20, True, 0.4), (1, 19, 7, 12, True, 1.0), (2, 5, 9, 68, False, 1.7), (1, 130, 67, 8, True, -0.5),
    ):  # fmt: skip
        query = m.tensor(2, heads, length, width)
        rest = [m.tensor(2, heads, keys, width) for _ in range(2)]
        yield m.case("contiguous", query, *rest, 0.0, causal, scale=scale)
    query, *rest = m.tensor(2, 2, 5, 8), *(m.tensor(2, 2, 7, 8) for _ in range(2))
    hidden = m.tensor(2, 2, 5, 7).view.copy()
    hidden[:, :, :, 1::3] = -np.inf
    yield m.case("special", query, *rest, 0.0, False, attn_mask=m.values(hidden), scale=0.9)
    yield m.case("special", query, *rest, 0.0, False, attn_mask=m.tensor(5, 7), scale=1.2)
    large = [m.tensor(1, 2, 5, 64, low=-50, high=60) for _ in range(2)]  # 16-bit products and sums overflow
    yield m.case("special", *large, m.tensor(1, 2, 5, 64, low=-3e4, high=6e4), 0.0, False, scale=1e-3)
    yield m.case("special", query, *rest, 0.0, False, scale=20.0)  # scores whose exponentials overflow
    many = [
        m.tensor(1, 2, n, 16, low=-12, high=14) for n in (7, 200, 200)
    ]  # scores that halves round by tenths
    yield m.case("special", *many, 0.0, False)
    for width in (64, 128):  # heads of models, and keys that fill no tile
        yield m.case(
            "large", *(m.tensor(1, 2, n, width, low=-0.9, high=1) for n in (5, 131, 131)), 0.0, False
        )
    query, *rest = m.tensor(1, 2, 5, 8), *(m.tensor(1, 2, 140, 8) for _ in range(2))
    least = np.zeros((5, 140))  # tiles of keys that the lowest number hides
    least[:3, :130], least[3:, 64:] = [float(ml_dtypes.finfo(dt.DTYPES[m.dtype].numpy).min)] * 2
    yield m.case("special", query, *rest, 0.0, False, attn_mask=m.values(least))
    if m.dtype == "float32":
        query, *rest = m.tensor(1, 1, 3, 20), *(m.tensor(1, 1, 4133, 20) for _ in range(2))
        yield m.case("large", query, *rest, 0.0, False)
        query, *rest = m.tensor(1, 1, 65_601, 4), *(m.tensor(1, 1, 3, 4) for _ in range(2))
        yield m.case("large", query, *rest, 0.0, False)
        query, *rest = (m.tensor(1, 1, n, 4133, low=-0.3, high=0.4) for n in (2, 3, 3))
        yield m.case("large", query, *rest, 0.0, False)  # features
        far = m.tensor(1, 1, 65_601, 2).view.copy()
        far[..., -1, :] = 20.0  # the last key decides
        query, value = m.values(np.ones((1, 1, 1, 2))), m.tensor(1, 1, 65_601, 2)
        yield m.case("large", query, m.values(far), value, 0.0, False)
        query, *rest = m.tensor(70, 5, 1, 4), *(m.tensor(70, 5, 2, 4) for _ in range(2))
        yield m.case("large", query, *rest, 0.0, False)
    masked = [m.tensor(2, 3, 9, 8) for _ in range(3)]
    yield m.case("broadcast", *masked, 0.0, False, attn_mask=m.tensor(2, 1, 9, 9), scale=0.21, model="bert")


def _attend(query: Any, key: Any, value: Any, causal: bool, mask: Any, scale: Any) -> tuple[Any, Any, Any]:
    """Weights, log-sum-exp and scores in float64."""
    import torch

    scores = query @ key.transpose(-1, -2) * (scale or query.shape[-1] ** -0.5)
    if mask is not None:
        scores = scores + mask
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    return torch.softmax(scores, -1), torch.logsumexp(scores, -1), scores


def _attention_reference(query: Any, key: Any, value: Any, dropout_p: float, is_causal: bool, attn_mask: Any,
                         scale: Any) -> tuple[Any, Any]:  # fmt: skip
    weights, sums, _ = _attend(query, key, value, is_causal, attn_mask, scale)
    return weights @ value, sums


def _attention_size(query: Any, key: Any, value: Any, dropout_p: float, is_causal: bool, attn_mask: Any,
                    scale: Any) -> tuple[Any, Any]:  # fmt: skip
    weights, _, _ = _attend(query, key, value, is_causal, attn_mask, scale)
    size, _, _ = _sizes(query, key, attn_mask, scale)
    return (weights * (1 + size)) @ value.abs(), size.amax(-1) + 3


def _sizes(query: Any, key: Any, mask: Any, scale: Any) -> tuple[Any, Any, float]:
    import torch

    factor = scale or query.shape[-1] ** -0.5
    size = query.abs() @ key.abs().transpose(-1, -2) * abs(factor)
    if mask is not None:  # what hides a key adds nothing
        size = size + torch.where(mask.abs() < _HIDDEN, mask.abs(), 0)
    return size, mask, factor


def _attention_gradients(m: Maker) -> Iterator[Case]:
    for kind, shape, keys, layout, causal, scale, masked, model in (
        ("contiguous", (2, 3, 17, 8), 17, "contiguous", True, None, False, "llama"),
        ("contiguous", (2, 2, 7, 12), 7, "contiguous", False, None, False, "bert"),
        ("strided", (2, 3, 11, 8), 11, "heads", True, None, False, "llama"),
        ("contiguous", (2, 1, 7, 20), 19, "contiguous", True, 0.4, False, ""),
        ("contiguous", (1, 2, 19, 12), 7, "contiguous", True, 1.0, False, ""),
        (
            "contiguous",
            (1, 1, 5, 8),
            140,
            "contiguous",
            True,
            None,
            False,
            "",
        ),  # tiles of keys that no query sees
        ("special", (2, 2, 5, 8), 7, "contiguous", False, 0.9, True, ""),
        ("large", (1, 2, 67, 68), 131, "contiguous", False, 0.2, False, ""),
        *[
            ("large", (1, 1, queries, width), keys, "contiguous", False, scale, False, "")
            for queries, keys, width, scale in ((4133, 3, 4, 0.2), (3, 4133, 4, 0.2), (2, 3, 4133, 0.002))
            if m.dtype == "float32"
        ],
        (
            "contiguous",
            (1, 1, 150, 4),
            150,
            "contiguous",
            True,
            None,
            False,
            "",
        ),  # tiles of queries and of keys
        ("contiguous", (1, 1, 1, 3), 1, "contiguous", False, None, False, ""),  # shorter than a vector
        *(
            [("large", (2, 4, 131, 68), 7, "contiguous", False, -0.3, False, "")]
            if m.dtype == "float32"
            else []
        ),
    ):
        grad, query = m.tensor(*shape), m.tensor(*shape, layout=layout)
        key, value = (m.tensor(*shape[:2], keys, shape[3], layout=layout) for _ in range(2))
        mask = m.tensor(shape[0], shape[1], shape[2], keys) if masked else None
        wide = [t.view.astype(np.float64) for t in (query, key, value)]
        scores = wide[0] @ wide[1].swapaxes(-1, -2) * (scale or shape[-1] ** -0.5)
        scores = scores + mask.view.astype(np.float64) if mask else scores
        if causal:
            scores = np.where(np.triu(np.ones(scores.shape[-2:], bool), 1), -np.inf, scores)
        top = scores.max(-1, keepdims=True)
        power = np.exp(scores - top)
        total = power.sum(-1, keepdims=True)
        sums = m.values((np.log(total) + top)[..., 0], m.compute_dtype)
        out = m.values(power / total @ wide[2], layout=layout)
        yield m.case(kind, grad, query, key, value, out, sums, 0.0, causal, attn_mask=mask, scale=scale,
                     model=model)  # fmt: skip


def _attention_gradient(grad_out: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, dropout_p: float,
                        is_causal: bool, attn_mask: Any = None, scale: Any = None) -> tuple[Any, ...]:  # fmt: skip
    factor = scale or query.shape[-1] ** -0.5
    _, _, scores = _attend(query, key, value, is_causal, attn_mask, scale)
    weights = (scores - logsumexp.unsqueeze(-1)).exp()
    slope = weights * (grad_out @ value.transpose(-1, -2) - (grad_out * out).sum(-1, keepdim=True)) * factor
    return slope @ key, slope.transpose(-1, -2) @ query, weights.transpose(-1, -2) @ grad_out


def _attention_gradient_size(grad_out: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any,
                             dropout_p: float, is_causal: bool, attn_mask: Any = None,
                             scale: Any = None) -> tuple[Any, ...]:  # fmt: skip
    _, _, scores = _attend(query, key, value, is_causal, attn_mask, scale)
    weights = (scores - logsumexp.unsqueeze(-1)).exp()
    size, _, factor = _sizes(query, key, attn_mask, scale)
    grad, wide = grad_out.abs(), weights * (1 + size)
    terms = grad @ value.abs().transpose(-1, -2) + (grad * out.abs()).sum(-1, keepdim=True)
    slope = wide * terms * abs(factor)
    return slope @ key.abs(), slope.transpose(-1, -2) @ query.abs(), wide.transpose(-1, -2) @ grad


_HALF_STEPS = "probabilities and gradients may be rounded to the half between the two products"
_ATTENTION = {
    "": accumulated(32, "two blocked products around a softmax"),
    "bfloat16": accumulated(2.0**16, _HALF_STEPS),
    "float16": accumulated(2.0**13, _HALF_STEPS),
}

OPERATORS: list[Operator] = [
    op("_softmax", dt.FLOATS, "like(self)", "self.dtype", _forward, _SOFTMAX, magnitude=_softmax_size,
       extreme=_EXTREME),
    op("_safe_softmax", dt.FLOATS, "like(self)", "self.dtype", _safe, _SOFTMAX,
       magnitude=lambda **a: _softmax_size(**a).nan_to_num(0), extreme=_EXTREME),
    op("_log_softmax", dt.FLOATS, "like(self)", "self.dtype", _forward, _LOG, magnitude=_log_size, extreme=_EXTREME),
    op("_softmax_backward_data", dt.FLOATS, "like(grad_output)", "grad_output.dtype", _gradients(False), _BACKWARD,
       magnitude=_softmax_gradient, special=ONLY_NAN),
    op("_log_softmax_backward_data", dt.FLOATS, "like(grad_output)", "grad_output.dtype", _gradients(True), _BACKWARD,
       magnitude=_log_gradient),
    op("_scaled_dot_product_flash_attention_for_cpu", dt.FLOATS, "(query.shape, query.shape[:3])",
       "(query.dtype, accumulator(query))", _attention, _ATTENTION, reference=_attention_reference,
       magnitude=_attention_size, strided=False, special=()),  # masked elements may be skipped
    op("_scaled_dot_product_flash_attention_for_cpu_backward", dt.FLOATS, "(query.shape, key.shape, value.shape)",
       "(query.dtype, query.dtype, query.dtype)", _attention_gradients, _ATTENTION, reference=_attention_gradient,
       magnitude=_attention_gradient_size, strided=False, special=(), paired=True),
]  # fmt: skip
