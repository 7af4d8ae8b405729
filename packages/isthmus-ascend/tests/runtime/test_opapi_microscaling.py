"""Microscaling formats against the definition of OCP MX 1.0, block by block in float64."""

import math

import pytest
import torch

from tests.runtime import opapi
from tests.runtime.tensors import positive, real
from tests.runtime.test_opapi_errors import refused

FORMATS = {torch.float8_e4m3fn: (8, 448), torch.float8_e5m2: (15, 57344)}
SCALE = torch.float8_e8m0fnu


def quantised(
    x: torch.Tensor, axis: int, dtype: torch.dtype, size: int = 32
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the 8-bit floats, and the codes of the scales with two blocks in the last dimension."""
    emax, most = FORMATS[dtype]
    axis %= x.dim()
    rows = x.double().movedim(axis, -1)
    y, length = torch.zeros_like(rows), rows.shape[-1]
    pairs = -(-length // (2 * size))
    codes = torch.zeros(*rows.shape[:-1], 2 * pairs, dtype=torch.uint8)
    for at in torch.cartesian_prod(*(torch.arange(n) for n in rows.shape[:-1])).reshape(-1, rows.dim() - 1):
        for block in range(-(-length // size)):
            part = (*at.tolist(), slice(block * size, (block + 1) * size))
            largest = float(rows[part].abs().max())
            exponent = max(math.floor(math.log2(largest)) - emax, -127) if largest > 0 else -127
            codes[(*at.tolist(), block)] = exponent + 127
            y[part] = (rows[part] / 2.0**exponent).clamp(-most, most)
    return y.movedim(-1, axis).float().to(dtype), codes.unflatten(-1, (pairs, 2)).movedim(-2, axis)


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.shape == expected.shape
    assert torch.equal(actual.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))


def call(name: str, y: torch.Tensor, codes: torch.Tensor, scale: str = "mxscale", **inputs: object) -> None:
    """Call and compare with y and the codes of the scales."""
    out, scales = torch.ones_like(y), torch.ones(codes.shape).to(SCALE)
    opapi.named(name, y=out, **{scale: scales}, **inputs)
    same(out, y)
    same(scales, codes)


@pytest.mark.parametrize("name", ["DynamicMxQuant", "DynamicMxQuantV2", "DynamicMxQuantV3"])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_blocks_of_one_axis(name: str, dtype: torch.dtype, axis: int) -> None:
    for x in (real(3, 70, 2), real(96, 5, 33, low=-1e4, high=1e4).to(torch.bfloat16)):
        expected = quantised(x, axis, dtype)
        call(name, *expected, x=x, axis=axis, dst_type=dtype, block_size=32, round_mode="rint")
    expected = quantised(x, axis, dtype, 64)
    call(name, *expected, x=x, axis=axis, dst_type=dtype, block_size=64, round_mode="rint")


def test_blocks_of_zeros_tiny_values_and_infinities() -> None:
    x = torch.zeros(4, 32)
    x[1, 3], x[2, 5], x[3, 0] = 1e-44, torch.inf, 2.0**127
    y, scale = torch.ones(4, 32).to(torch.float8_e4m3fn), torch.ones(4, 1, 2).to(SCALE)
    opapi.named("DynamicMxQuant", x=x, axis=-1, dst_type=y.dtype, block_size=32, round_mode="rint", y=y,
                mxscale=scale)  # fmt: skip
    assert scale.view(torch.uint8)[:, 0].tolist() == [[0, 0], [0, 0], [255, 0], [246, 0]]
    assert (y[0].float() == 0).all() and y[2].float().isnan().all() and y[3, 0].float() == 256


@pytest.mark.parametrize("name", ["DynamicMxQuantWithDualAxis", "DynamicMxQuantWithDualAxisV2"])
@pytest.mark.parametrize("dtype", FORMATS)
def test_blocks_of_two_axes(name: str, dtype: torch.dtype) -> None:
    x = real(2, 40, 66).half()
    expected = [*quantised(x, -1, dtype), *quantised(x, -2, dtype)]
    out = [torch.ones_like(t) if t.dtype == dtype else torch.ones(t.shape).to(SCALE) for t in expected]
    given = dict(zip(("y1", "mxscale1", "y2", "mxscale2"), out, strict=True))
    opapi.named(name, x=x, dst_type=dtype, round_mode="rint", **given)
    for one, other in zip(out, expected, strict=True):
        same(one, other)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("axis", [-1, 0])
def test_blocks_dequantised(dtype: torch.dtype, axis: int) -> None:
    codes, scales = quantised(real(70, 34), axis, dtype)
    expected = codes.double().movedim(axis, -1)
    factors = 2.0 ** (scales.double().movedim(axis % 2, -2).flatten(-2) - 127)
    expected = (expected * factors.repeat_interleave(32, -1)[:, : expected.shape[-1]]).movedim(-1, axis)
    y = torch.zeros(70, 34)
    opapi.named("AntiMxQuant", x=codes, mxscale=scales.contiguous().view(SCALE), axis=axis,
                dst_type=torch.float32, y=y)  # fmt: skip
    assert torch.equal(y, expected.float())


@pytest.mark.parametrize("with_beta", [False, True])
def test_norm_in_blocks(with_beta: bool) -> None:
    x1, x2, gamma, dtype = real(3, 64), real(3, 64), positive(64), torch.float8_e4m3fn
    beta = real(64) if with_beta else None

    def norm(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rstd = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        return x * rstd * gamma + (0 if beta is None else beta), rstd

    given = {"x1": x1, "gamma": gamma, "beta": beta, "epsilon": 1e-6, "dst_type": dtype, "round_mode": "rint"}
    rstd, x = torch.zeros(3, 1), torch.zeros(3, 64)
    y, expected = norm(x1)
    call("RmsNormDynamicMxQuant", *quantised(y, -1, dtype), **given, output_rstd=True, rstd=rstd)
    torch.testing.assert_close(rstd, expected)
    y, expected = norm(x1 + x2)
    call("AddRmsNormDynamicMxQuant", *quantised(y, -1, dtype), **given, x2=x2, x=x, rstd=rstd)
    torch.testing.assert_close((rstd, x), (expected, x1 + x2))


@pytest.mark.parametrize("blocks", [False, True])
def test_rotation_then_quantised(blocks: bool) -> None:
    x = real(5, 128).bfloat16()
    rotation = (real(2, 64, 64) if blocks else real(64, 64)).bfloat16()
    parts = x.float().view(5, 2, 1, 64)
    turned = (parts @ rotation.float()).view(5, 128).bfloat16()
    scale = turned.float().abs().amax(-1) / 127
    y, scales = torch.zeros(5, 128, dtype=torch.int8), torch.zeros(5)
    opapi.named("RotateQuant", x=x, rotation=rotation, axis=-1, round_mode="rint", y=y, scale=scales)
    torch.testing.assert_close(scales, scale)
    assert torch.equal(y, (turned.float() / scale[:, None]).round().to(torch.int8))
    given = {"x": x, "rotation": rotation, "axis": -1, "round_mode": "rint"}
    call("RotateQuant", *quantised(turned, -1, torch.float8_e5m2), "scale", **given)
    part = turned.view(5, 4, 32)
    limit = (part.float().abs().amax(-1, keepdim=True) * 0.75).bfloat16()
    limited = part.clamp(-limit, limit).view(5, 128)
    call("RotateQuant", *quantised(limited, -1, torch.float8_e5m2), "scale", **given,
         alpha=torch.tensor([0.75]))  # fmt: skip


@pytest.mark.parametrize("left", [False, True])
def test_swiglu_in_blocks(left: bool) -> None:
    x, dtype = real(3, 132), torch.float8_e4m3fn
    gate, linear = x.chunk(2, -1) if left else x.chunk(2, -1)[::-1]
    y = torch.nn.functional.silu(gate) * linear
    given = {"x": x, "activate_dim": 1, "activate_left": left, "dst_type": dtype, "round_mode": "rint"}
    for axis in (-1, 0):
        call("SwigluMxQuant", *quantised(y, axis, dtype), **given, axis=axis)
    outs = {name: torch.ones(3, 66).to(dtype) for name in ("y1", "y2")}
    scales = {"mxscale1": torch.ones(3, 2, 2).to(SCALE), "mxscale2": torch.ones(1, 66, 2).to(SCALE)}
    given = {"x": x, "activate_left": left, "dst_type": dtype, "round_mode": "rint"}
    opapi.named("SwigluMxQuantWithDualAxis", **given, **outs, **scales)
    for axis, i in ((-1, 1), (0, 2)):
        expected, codes = quantised(y, axis, dtype)
        same(outs[f"y{i}"], expected)
        same(scales[f"mxscale{i}"], codes)


def test_refused() -> None:
    x, y = torch.ones(2, 64), torch.ones(2, 64).to(torch.float8_e5m2)
    scale = torch.ones(2, 1, 2).to(SCALE)
    message = refused("DynamicMxQuant", x, -1, "rint", torch.float8_e5m2, 48, 0, y, scale)
    assert "aclnnDynamicMxQuant" in message and "block_size is 48, expected a multiple of 32" in message
    message = refused("DynamicMxQuant", x, -1, "rint", torch.float8_e5m2, 32, 0, y, scale[:, :, :1])
    assert "mxscale has shape [2, 1, 1], expected [2, 1, 2]" in message
    message = refused("DynamicMxQuant", x, -1, "rint", torch.float8_e5m2, 32, 1, y, scale)
    assert "scale_alg is 1, expected 0" in message
    message = refused("DynamicMxQuant", x.long(), -1, "rint", torch.float8_e5m2, 32, 0, y, scale)
    assert "x has dtype Long, expected a float" in message
