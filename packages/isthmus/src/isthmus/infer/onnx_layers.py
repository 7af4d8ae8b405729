"""ONNX operators that are layers of neural networks: activations, normalization, convolution, pooling, attention."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from isthmus.infer.onnx_operators import Attributes, Function


def _conv(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    x, padding = _pad(a, x, weight.shape[2:], 0.0)
    return _convolve(a, x, weight, bias, padding, False)


def _conv_transpose(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    n = x.dim() - 2
    pads = a.get("pads", [0] * 2 * n)
    if a["auto_pad"] != "NOTSET" or a.get("output_shape") or pads[:n] != pads[n:]:
        raise NotImplementedError("auto_pad, output_shape or asymmetric pads")
    return _convolve(a, x, weight, bias, pads[:n], True)


def _convolve(
    a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None, padding: list[int], transposed: bool
) -> Tensor:
    ones = [1] * (x.dim() - 2)
    stride, dilation = a.get("strides", ones), a.get("dilations", ones)
    more = a.get("output_padding", [0] * len(ones))
    return torch.convolution(x, weight, bias, stride, padding, dilation, transposed, more, a["group"])


def _pad(a: Attributes, x: Tensor, kernel: Any, value: float) -> tuple[Tensor, list[int]]:
    """Pad what the kernel cannot; return the symmetric padding that is left to it."""
    n = len(kernel)
    auto = a["auto_pad"]
    pads = a.get("pads", [0] * 2 * n)
    if auto.startswith("SAME"):
        pads = _same_pads(a, x, kernel, at_end=auto == "SAME_UPPER")
    if pads[:n] == pads[n:] and all(pad <= width // 2 for pad, width in zip(pads, kernel, strict=False)):
        return x, pads[:n]
    flat = [size for pair in reversed(list(zip(pads[:n], pads[n:], strict=True))) for size in pair]
    return F.pad(x, flat, value=value), [0] * n


def _same_pads(a: Attributes, x: Tensor, kernel: Any, at_end: bool) -> list[int]:
    ones = [1] * len(kernel)
    totals = [
        max(0, (-(-size // stride) - 1) * stride + (width - 1) * dilation + 1 - size)
        for size, width, stride, dilation in zip(
            x.shape[2:], kernel, a.get("strides", ones), a.get("dilations", ones), strict=True
        )
    ]
    halves, rest = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return halves + rest if at_end else rest + halves


def _max_pool(a: Attributes, x: Tensor) -> Tensor:
    kernel = a["kernel_shape"]
    x, padding = _pad(a, x, kernel, -float("inf"))
    ones = [1] * len(kernel)
    function = getattr(F, f"max_pool{len(kernel)}d")
    ceil = bool(a["ceil_mode"])
    pooled: Tensor = function(x, kernel, a.get("strides", ones), padding, a.get("dilations", ones), ceil)
    return pooled


def _average_pool(a: Attributes, x: Tensor) -> Tensor:
    if max(a.get("dilations", [1])) > 1:
        raise NotImplementedError("dilations")
    kernel = a["kernel_shape"]
    counted, ceil = bool(a["count_include_pad"]), bool(a["ceil_mode"])
    function = getattr(F, f"avg_pool{len(kernel)}d")
    strides = a.get("strides", [1] * len(kernel))
    padded, padding = _pad(a, x, kernel, 0.0)
    pooled: Tensor = function(padded, kernel, strides, padding, ceil, counted)
    if padded is not x and not counted:
        pooled = pooled / function(
            _pad(a, torch.ones_like(x), kernel, 0.0)[0], kernel, strides, padding, ceil
        )
    return pooled


def _global(function: Function) -> Function:
    return lambda a, x: function(x, list(range(2, x.dim())), True)


def _batch_norm(a: Attributes, x: Tensor, *rest: Tensor) -> Tensor:
    scale, bias, mean, variance = rest
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, a["epsilon"])


def _layer_norm(a: Attributes, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.layer_norm(x, x.shape[a["axis"] :], scale, bias, a["epsilon"])


def _rms_norm(a: Attributes, x: Tensor, scale: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[a["axis"] :], scale, a["epsilon"])


def _group_norm(a: Attributes, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.group_norm(x, a["num_groups"], scale, bias, a["epsilon"])


def _instance_norm(a: Attributes, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.instance_norm(x, None, None, scale, bias, True, 0.0, a["epsilon"])


def _gemm(a: Attributes, x: Tensor, y: Tensor, c: Tensor | None = None) -> Tensor:
    x, y = x.T if a["transA"] else x, y.T if a["transB"] else y
    alpha, beta = a["alpha"], a["beta"]
    return alpha * (x @ y) if c is None else torch.addmm(c, x, y, beta=beta, alpha=alpha)


def _attention(
    a: Attributes, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *cache: Tensor
) -> Tensor:
    causal, scale = bool(a["is_causal"]), a.get("scale")
    if cache or q.dim() != 4 or (mask is not None and (causal or mask.dim() < 2)):
        raise NotImplementedError("three dimensions, a cache, or a mask with is_causal")
    shared = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=shared)


def _recurrent(function: Function, order: list[int], states: int) -> Function:
    """An LSTM or GRU of PyTorch, whose gates are the standard's in another order."""

    def run(
        a: Attributes,
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        lengths: Any = None,
        *initial: Any,
    ) -> tuple[Tensor, ...]:
        if lengths is not None or a["direction"] == "reverse" or a.get("linear_before_reset", 1) != 1:
            raise NotImplementedError("sequence_lens, one direction in reverse, or linear_before_reset=0")
        if len(w) != 1 + (a["direction"] == "bidirectional"):
            raise ValueError(f"{a['direction']} with weights of {len(w)} directions")
        if any(each is not None for each in initial[states:]):
            raise NotImplementedError("peepholes")
        gates, hidden = len(order), r.shape[2]
        zeros = x.new_zeros(len(w), x.shape[1], hidden)
        first = [zeros if each is None else each for each in (*initial, None, None)[:states]]
        biases = x.new_zeros(len(w), 2 * gates * hidden) if b is None else b
        weights = [
            torch.cat([part.chunk(gates)[i] for i in order])
            for direction in zip(w, r, *biases.chunk(2, 1), strict=True)
            for part in direction
        ]
        start = first[0] if states == 1 else first
        y, *last = function(x, start, weights, True, 1, 0.0, False, len(w) == 2, False)
        return y.unflatten(2, (len(w), hidden)).transpose(1, 2), *last

    return run


def _dropout(a: Attributes, x: Tensor, ratio: Any = None, training: bool | None = None) -> Tensor:
    if training:
        raise NotImplementedError("training mode")
    return x


def _resize(
    a: Attributes,
    x: Tensor,
    roi: Any = None,
    scales: list[float] | None = None,
    sizes: list[int] | None = None,
) -> Tensor:
    kind, how = a["mode"], a["coordinate_transformation_mode"]
    floor = a["nearest_mode"] == "floor"
    coefficient = a["cubic_coeff_a"]
    if (kind, how) not in _INTERPOLATIONS or (kind == "nearest" and not floor) or coefficient != -0.75:
        raise NotImplementedError(f"{kind} interpolation with {how}")
    mode = {("linear", 4): "bilinear", ("linear", 5): "trilinear", ("cubic", 4): "bicubic"}.get(
        (kind, x.dim()), kind
    )
    corners = None if kind == "nearest" else how == "align_corners"
    if sizes:
        if how == "pytorch_half_pixel" and 1 in sizes[2:]:
            raise NotImplementedError(f"a size of 1 with {how}")
        return F.interpolate(x, sizes[2:], mode=mode, align_corners=corners)
    if corners:
        raise NotImplementedError(f"scales with {how}")
    factors = (scales or [])[2:]
    return F.interpolate(x, scale_factor=factors, mode=mode, align_corners=corners)


_INTERPOLATIONS = {
    ("nearest", "asymmetric"),
    *(
        (kind, how)
        for kind in ("linear", "cubic")
        for how in ("half_pixel", "pytorch_half_pixel", "align_corners")
    ),
}


LAYERS: dict[str, Function] = {
    "Attention": _attention,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Dropout": _dropout,
    "Elu": lambda a, x: F.elu(x, a["alpha"]),
    "Gelu": lambda a, x: F.gelu(x, approximate=a["approximate"]),
    "Gemm": _gemm,
    "GlobalAveragePool": _global(torch.mean),
    "GRU": _recurrent(torch.gru, [1, 0, 2], states=1),
    "GlobalMaxPool": _global(torch.amax),
    "GroupNormalization": _group_norm,
    "HardSwish": lambda a, x: F.hardswish(x),
    "InstanceNormalization": _instance_norm,
    "LSTM": _recurrent(torch.lstm, [0, 2, 3, 1], states=2),
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda a, x: F.leaky_relu(x, a["alpha"]),
    "LogSoftmax": lambda a, x: F.log_softmax(x, a["axis"]),
    "MaxPool": _max_pool,
    "RMSNormalization": _rms_norm,
    "Relu": lambda a, x: F.relu(x),
    "Resize": _resize,
    "Softmax": lambda a, x: F.softmax(x, a["axis"]),
    "Softplus": lambda a, x: F.softplus(x),
}
