"""Normalisation families against PyTorch's own norms in float64, and their derivatives."""

import pytest
import torch
from torch.nn import functional as F

from tests.runtime.opapi import check, gradients
from tests.runtime.tensors import leaf, positive, quantised, real


@pytest.mark.parametrize("name", ["AddLayerNorm", "DeepNorm"])
@pytest.mark.parametrize("shared", [True, False])
def test_layer_norm_of_a_sum(name: str, shared: bool) -> None:
    x1, x2, gamma, beta = real(2, 3, 4), real(2, 3, 4), real(4), real(4)
    deep = name == "DeepNorm"
    options = {"alpha": 0.3} if deep else {"bias": real(4) if shared else real(2, 3, 4)}
    x = x1.double() * options.get("alpha", 1) + x2 + options.get("bias", 0)
    expected = {
        "y": F.layer_norm(x, (4,), gamma.double(), beta.double(), 1e-3),
        "mean": x.mean(-1, keepdim=True),
        "rstd": (x.var(-1, keepdim=True, correction=0) + 1e-3).rsqrt(),
    }
    if not deep:
        expected["x"] = x
    check(name, expected, x1=x1, x2=x2, gamma=gamma, beta=beta, epsilon=1e-3, **options)


@pytest.mark.parametrize("name", ["AddLayerNormGrad", "DeepNormGrad"])
def test_gradient_of_layer_norm_of_a_sum(name: str) -> None:
    deep = name == "DeepNormGrad"
    alpha = 0.3 if deep else 1.0
    x1, x2, gamma, beta = (leaf(*shape) for shape in ((2, 3, 4), (2, 3, 4), (4,), (4,)))
    dy, dsum = real(2, 3, 4), real(2, 3, 4)
    x = alpha * x1 + x2
    y = F.layer_norm(x, (4,), gamma, beta, 1e-3)
    expected = gradients(y, dy, dx=x1, dgamma=gamma, dbeta=beta, **({"dx2": x2} if deep else {}))
    expected["dx"] += 0 if deep else dsum
    given = {"x1": x1, "x2": x2, "gamma": gamma, "mean": x.mean(-1, keepdim=True)}
    given["rstd"] = (x.var(-1, keepdim=True, correction=0) + 1e-3).rsqrt()
    check(name, expected, dy=dy, **given, **({"alpha": alpha} if deep else {"dsum": dsum}))


def rms(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor | None = None) -> torch.Tensor:
    y = F.rms_norm(x, (4,), gamma, 1e-3)
    return y if beta is None else y + beta


def test_rms_norm_of_a_sum_in_two_dtypes_and_in_place() -> None:
    x1, x2, gamma = real(2, 3, 4), real(2, 3, 4), real(4)
    x = x1.double() + x2
    y, rstd = rms(x, gamma.double()), (x.square().mean(-1, keepdim=True) + 1e-3).rsqrt()
    given = {"x1": x1, "x2": x2, "gamma": gamma, "epsilon": 1e-3}
    check("AddRmsNormCast", {"y_wide": y, "y": y.half(), "rstd": rstd, "x": x}, 1e-3, **given)
    check("InplaceAddRmsNorm", {"x1": y, "x2": x, "rstd": rstd}, **given)


@pytest.mark.parametrize("divide", [False, True])
@pytest.mark.parametrize("name", ["AddRmsNormQuant", "AddRmsNormQuantV2", "RmsNormQuantV3"])
def test_rms_norm_quantised(name: str, divide: bool) -> None:
    x1, x2, gamma, beta = real(2, 3, 4), real(2, 3, 4), real(4), real(4)
    scale, scale2, offset = positive(4), positive(4), torch.tensor([3, -5, 0, 7], dtype=torch.int32)
    if divide:
        scale, scale2 = scale / 40, scale2 / 40
    else:
        scale, scale2 = scale * 40, scale2 * 40
    given = {"x1": x1, "gamma": gamma, "scale": scale, "offset": offset, "epsilon": 1e-3, "div_mode": divide}
    x = x1.double()
    if name != "RmsNormQuantV3":
        given |= {"x2": x2, "scale2": scale2}
        x = x + x2
    if name != "AddRmsNormQuant":
        given["beta"] = beta
    norm = rms(x, gamma.double(), given.get("beta"))
    one, two = (norm / scale, norm / scale2) if divide else (norm * scale, norm * scale2)
    expected = {"y": quantised(one + offset)}
    if name == "RmsNormQuantV3":
        expected["rstd"] = (x.square().mean(-1, keepdim=True) + 1e-3).rsqrt()
    else:
        expected |= {"y2": quantised(two), "x": x}
    if name == "AddRmsNormQuantV2":
        expected["norm"] = norm
    check(name, expected, **given)


@pytest.mark.parametrize("mask", [None, [True, True], [False, True]])
def test_rms_norm_quantised_by_row(mask: list[bool] | None) -> None:
    x1, x2, gamma, beta, smooth, smooth2 = real(2, 3, 4), real(2, 3, 4), real(4), real(4), real(4), real(4)
    norm = rms(x1.double() + x2, gamma.double(), beta)
    expected = {"x": x1.double() + x2}
    for part, factor, asked in (("", smooth, not mask or mask[0]), ("2", smooth2, not mask or mask[1])):
        scale = (norm * factor).abs().amax(-1, keepdim=True) / 127
        if asked:
            expected |= {f"y{part}": quantised(norm * factor / scale), f"scale{part}": scale.squeeze(-1)}
    given = {"x1": x1, "x2": x2, "gamma": gamma, "beta": beta, "smooth": smooth, "smooth2": smooth2}
    if "y" not in expected:
        given["y"] = torch.zeros(2, 3, 4, dtype=torch.int8)
    check("AddRmsNormDynamicQuantV2", expected, **given, epsilon=1e-3, output_mask=mask)


def test_gradient_of_rms_norm_quantised() -> None:
    x, gamma, dy = leaf(2, 3, 4), leaf(4), real(2, 3, 4)
    expected = gradients(F.rms_norm(x, (4,), gamma, 1e-3), dy, dx=x, dgamma=gamma)
    expected["dx"] = quantised(expected["dx"] / 0.02 + 4)
    given = {"dy": dy, "x": x, "rstd": (x.square().mean(-1) + 1e-3).rsqrt(), "gamma": gamma}
    given |= {"scale": torch.tensor([0.02]), "offset": torch.tensor([4], dtype=torch.int32)}
    check("RmsNormGradQuant", expected, **given, quant_mode="static", div_mode=True)


@pytest.mark.parametrize(
    ("name", "activate"), [("GroupNormSilu", True), ("GroupNormSwish", True), ("GroupNormSwish", False)]
)
def test_group_norm_and_swish(name: str, activate: bool) -> None:
    x, weight, bias = real(2, 6, 3, 5), real(6), real(6)
    scale = 1.0 if name == "GroupNormSilu" else 1.7
    y = F.group_norm(x.double(), 3, weight.double(), bias.double(), 1e-3)
    grouped = x.double().reshape(2, 3, -1)
    expected = {
        "out": y * torch.sigmoid(scale * y) if activate else y,
        "mean": grouped.mean(-1),
        "rstd": (grouped.var(-1, correction=0) + 1e-3).rsqrt(),
    }
    options = (
        {} if name == "GroupNormSilu" else {"activate": activate, "swish_scale": scale, "data_format": "NCHW"}
    )
    check(name, expected, input=x, weight=weight, bias=bias, num_groups=3, eps=1e-3, **options)


def test_gradient_of_group_norm_and_swish() -> None:
    x, weight, bias = (leaf(*shape) for shape in ((2, 6, 3, 5), (6,), (6,)))
    y, dy = F.group_norm(x, 3, weight, bias, 1e-3), real(2, 6, 3, 5)
    expected = gradients(y * torch.sigmoid(1.7 * y), dy, dx=x, dweight=weight, dbias=bias)
    grouped = x.reshape(2, 3, -1)
    given = {"mean": grouped.mean(-1), "rstd": (grouped.var(-1, correction=0) + 1e-3).rsqrt()}
    given |= {"input": x, "weight": weight, "bias": bias}
    options = {"num_groups": 3, "data_format": "NCHW", "swish_scale": 1.7}
    check("GroupNormSwishGrad", expected, grad=dy, **given, **options, dweight_asked=True, dbias_asked=True)
