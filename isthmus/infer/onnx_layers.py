"""ONNX operators that are layers of neural networks: activations, normalization, convolution, pooling, attention."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from isthmus.infer.onnx_operators import Attributes, Function


def _conv(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    x, padding = _padded(a, x, weight.shape[2:], 0.0)
    ones = [1] * (x.dim() - 2)
    function: Any = (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3]
    stride, dilation = a.get("strides", ones), a.get("dilations", ones)
    convolved: Tensor = function(x, weight, bias, stride, padding, dilation, a.get("group", 1))
    return convolved


def _conv_transpose(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    n = x.dim() - 2
    ones, pads = [1] * n, a.get("pads", [0] * 2 * n)
    if a.get("auto_pad", "NOTSET") != "NOTSET" or "output_shape" in a or pads[:n] != pads[n:]:
        raise NotImplementedError("auto_pad, output_shape or asymmetric pads")
    function: Any = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
    more = a.get("output_padding", [0] * n)
    stride, dilation = a.get("strides", ones), a.get("dilations", ones)
    convolved: Tensor = function(x, weight, bias, stride, pads[:n], more, a.get("group", 1), dilation)
    return convolved


def _padded(a: Attributes, x: Tensor, kernel: Any, value: float) -> tuple[Tensor, list[int]]:
    """Pad what the kernel cannot; return the symmetric padding that is left to it."""
    n = len(kernel)
    auto = a.get("auto_pad", "NOTSET")
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
    x, padding = _padded(a, x, kernel, -float("inf"))
    ones = [1] * len(kernel)
    function: Any = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(kernel) - 1]
    ceil = bool(a.get("ceil_mode", 0))
    pooled: Tensor = function(x, kernel, a.get("strides", ones), padding, a.get("dilations", ones), ceil)
    return pooled


def _average_pool(a: Attributes, x: Tensor) -> Tensor:
    if max(a.get("dilations", [1])) > 1:
        raise NotImplementedError("dilations")
    kernel = a["kernel_shape"]
    counted, ceil = bool(a.get("count_include_pad")), bool(a.get("ceil_mode"))
    function: Any = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(kernel) - 1]
    strides = a.get("strides", [1] * len(kernel))
    padded, padding = _padded(a, x, kernel, 0.0)
    pooled: Tensor = function(padded, kernel, strides, padding, ceil, counted)
    if padded is not x and not counted:
        pooled = pooled / function(
            _padded(a, torch.ones_like(x), kernel, 0.0)[0], kernel, strides, padding, ceil
        )
    return pooled


def _global(function: Function) -> Function:
    return lambda a, x: function(x, list(range(2, x.dim())), True)


def _batch_norm(a: Attributes, x: Tensor, *rest: Tensor) -> Tensor:
    scale, bias, mean, variance = rest
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, a.get("epsilon", 1e-5))


def _layer_norm(a: Attributes, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.layer_norm(x, x.shape[a.get("axis", -1) :], scale, bias, a.get("epsilon", 1e-5))


def _rms_norm(a: Attributes, x: Tensor, scale: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[a.get("axis", -1) :], scale, a.get("epsilon", 1e-5))


def _group_norm(a: Attributes, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.group_norm(x, a["num_groups"], scale, bias, a.get("epsilon", 1e-5))


def _instance_norm(a: Attributes, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.instance_norm(x, None, None, scale, bias, True, 0.0, a.get("epsilon", 1e-5))


def _gemm(a: Attributes, x: Tensor, y: Tensor, c: Tensor | None = None) -> Tensor:
    x, y = x.T if a.get("transA") else x, y.T if a.get("transB") else y
    alpha, beta = a.get("alpha", 1.0), a.get("beta", 1.0)
    return alpha * (x @ y) if c is None else torch.addmm(c, x, y, beta=beta, alpha=alpha)


def _attention(
    a: Attributes, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *cache: Tensor
) -> Tensor:
    causal, scale = bool(a.get("is_causal")), a.get("scale")
    if cache or q.dim() != 4 or (mask is not None and (causal or mask.dim() < 2)):
        raise NotImplementedError("three dimensions, a cache, or a mask with is_causal")
    shared = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=shared)


def _selu(a: Attributes, x: Tensor) -> Tensor:
    return a.get("gamma", 1.0507009873554805) * F.elu(x, a.get("alpha", 1.6732632423543772))


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
    kind, how = a.get("mode", "nearest"), a.get("coordinate_transformation_mode", "half_pixel")
    floor = a.get("nearest_mode", "round_prefer_floor") == "floor"
    coefficient = a.get("cubic_coeff_a", -0.75)
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


def _depth_to_space(a: Attributes, x: Tensor) -> Tensor:
    if a.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, a["blocksize"])
    n, c, h, w = x.shape
    b = a["blocksize"]
    return x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // b**2, h * b, w * b)


LAYERS: dict[str, Function] = {
    "Attention": _attention,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Celu": lambda a, x: F.celu(x, a.get("alpha", 1.0)),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DepthToSpace": _depth_to_space,
    "Dropout": _dropout,
    "Elu": lambda a, x: F.elu(x, a.get("alpha", 1.0)),
    "Gelu": lambda a, x: F.gelu(x, approximate=a.get("approximate", "none")),
    "Gemm": _gemm,
    "GlobalAveragePool": _global(torch.mean),
    "GlobalMaxPool": _global(torch.amax),
    "GroupNormalization": _group_norm,
    "HardSigmoid": lambda a, x: torch.clamp(x * a.get("alpha", 0.2) + a.get("beta", 0.5), 0, 1),
    "HardSwish": lambda a, x: F.hardswish(x),
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda a, x: F.leaky_relu(x, a.get("alpha", 0.01)),
    "LogSoftmax": lambda a, x: F.log_softmax(x, a.get("axis", -1)),
    "MaxPool": _max_pool,
    "Mish": lambda a, x: F.mish(x),
    "PRelu": lambda a, x, slope: torch.where(x < 0, x * slope, x),
    "RMSNormalization": _rms_norm,
    "Relu": lambda a, x: F.relu(x),
    "Resize": _resize,
    "Selu": _selu,
    "Softmax": lambda a, x: F.softmax(x, a.get("axis", -1)),
    "Softplus": lambda a, x: F.softplus(x),
    "Softsign": lambda a, x: F.softsign(x),
}
