"""Normalisation families against PyTorch's own norms in float64, and their derivatives."""

import pytest
import torch
from torch.nn import functional as F

from tests.runtime.opapi import check
from tests.runtime.tensors import positive, real


def quantised(value: torch.Tensor, low: int = -128, high: int = 127) -> torch.Tensor:
    return value.round().clamp(low, high).to(torch.int8)


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
    x1, x2, gamma, beta = (
        real(*shape).double().requires_grad_() for shape in ((2, 3, 4), (2, 3, 4), (4,), (4,))
    )
    dy, dsum = real(2, 3, 4), real(2, 3, 4)
    x = alpha * x1 + x2
    y = F.layer_norm(x, (4,), gamma, beta, 1e-3)
    grads = torch.autograd.grad(y, (x1, x2, gamma, beta), dy.double())
    extra = 0 if deep else dsum
    expected = {"dx": grads[0] + extra, "dgamma": grads[2], "dbeta": grads[3]} | (
        {"dx2": grads[1]} if deep else {}
    )
    given = {"x1": x1, "x2": x2, "gamma": gamma, "mean": x.mean(-1, keepdim=True)}
    given["rstd"] = (x.var(-1, keepdim=True, correction=0) + 1e-3).rsqrt()
    inputs = {key: value.detach().float() for key, value in given.items()}
    check(name, expected, dy=dy, **inputs, **({"alpha": alpha} if deep else {"dsum": dsum}))


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
    check(
        "AddRmsNormDynamicQuantV2",
        expected,
        x1=x1,
        x2=x2,
        gamma=gamma,
        beta=beta,
        smooth=smooth,
        smooth2=smooth2,
        epsilon=1e-3,
        output_mask=mask,
        **({"y": torch.zeros(2, 3, 4, dtype=torch.int8)} if "y" not in expected else {}),
    )


def test_gradient_of_rms_norm_quantised() -> None:
    x, gamma, dy = real(2, 3, 4).double().requires_grad_(), real(4).double().requires_grad_(), real(2, 3, 4)
    dx, dgamma = torch.autograd.grad(F.rms_norm(x, (4,), gamma, 1e-3), (x, gamma), dy.double())
    rstd = (x.detach().square().mean(-1) + 1e-3).rsqrt().float()
    given = {"dy": dy, "x": x.detach().float(), "rstd": rstd, "gamma": gamma.detach().float()}
    check(
        "RmsNormGradQuant",
        {"dx": quantised(dx / 0.02 + 4), "dgamma": dgamma},
        **given,
        scale=torch.tensor([0.02]),
        offset=torch.tensor([4], dtype=torch.int32),
        quant_mode="static",
        div_mode=True,
    )


@pytest.mark.parametrize("name", ["GroupNormSilu", "GroupNormSwish"])
@pytest.mark.parametrize("activate", [True, False])
def test_group_norm_and_swish(name: str, activate: bool) -> None:
    if name == "GroupNormSilu" and not activate:
        return
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
    x, weight, bias = (real(*shape).double().requires_grad_() for shape in ((2, 6, 3, 5), (6,), (6,)))
    y, dy = F.group_norm(x, 3, weight, bias, 1e-3), real(2, 6, 3, 5)
    grads = torch.autograd.grad(y * torch.sigmoid(1.7 * y), (x, weight, bias), dy.double())
    grouped = x.detach().reshape(2, 3, -1)
    check(
        "GroupNormSwishGrad",
        dict(zip(("dx", "dweight", "dbias"), grads, strict=True)),
        grad=dy,
        mean=grouped.mean(-1).float(),
        rstd=(grouped.var(-1, correction=0) + 1e-3).rsqrt().float(),
        input=x.detach().float(),
        weight=weight.detach().float(),
        bias=bias.detach().float(),
        num_groups=3,
        data_format="NCHW",
        swish_scale=1.7,
        dweight_asked=True,
        dbias_asked=True,
    )
