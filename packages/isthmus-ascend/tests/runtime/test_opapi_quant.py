"""Quantisation families against their definitions in float64."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from tests.runtime import opapi
from tests.runtime.opapi import check
from tests.runtime.tensors import positive, quantised, real, whole
from tests.runtime.test_opapi_errors import refused


def by_row(value: torch.Tensor, dim: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values quantised with a scale for each row, and the scales."""
    scale = value.abs().amax(dim, keepdim=True) / 127
    return quantised(value / scale), scale.squeeze(dim)


@pytest.mark.parametrize("axis", [0, 1])
def test_quantise(axis: int) -> None:
    x, scale = real(3, 4), positive(3 if axis == 0 else 4)
    offset = torch.tensor([3, -120, 100, 7][: len(scale)], dtype=torch.int32)
    along = (lambda t: t[:, None]) if axis == 0 else (lambda t: t)
    y = quantised(x.double() / along(scale) + along(offset))
    check("Quantize", {"y": y}, x=x, scale=scale, offset=offset, axis=axis)
    y = x.double() * along(scale) * 70
    check("AscendQuantV3", {"y": quantised(y)}, x=x, scale=scale * 70, axis=axis, round_mode="round")
    wanted = (y + along(offset)).floor().clamp(-128, 127).to(torch.int8)
    given = {"x": x, "scale": scale * 70, "offset": offset.float()}
    check("AscendQuantV3", {"y": wanted}, **given, axis=axis, round_mode="floor")
    if axis == 1:
        check("AscendQuant", {"y": quantised(y + along(offset))}, **given, round_mode="round")
    wide = torch.tensor([1e30, -1e30, torch.nan, 0.5])
    saturated = torch.tensor([2147483647, -2147483648, 0, 0], dtype=torch.int32)
    check("Quantize", {"y": saturated}, x=wide, scale=torch.ones(1), axis=0)


def test_half_is_rounded_to_even_and_bytes_saturate() -> None:
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, 300.0, -300.0])
    signed = torch.tensor([0, 2, 2, 0, 127, -128], dtype=torch.int8)
    check("AscendQuant", {"y": signed}, x=x, scale=torch.ones(1), round_mode="round")
    check("Quantize", {"y": torch.tensor([0, 2, 2, 0, 255, 0], dtype=torch.uint8)}, x=x, scale=torch.ones(1))


def test_dequantise() -> None:
    x, scale, offset = whole(3, 4, low=-128, high=128).to(torch.int8), positive(4), real(4)
    check("AscendAntiQuant", {"y": (x.double() + offset) * scale}, x=x, scale=scale, offset=offset)
    product = whole(3, 4, low=-3000, high=3000).to(torch.int32)
    row, bias = positive(3), whole(4).to(torch.int32)
    given = {"x": product, "weight_scale": scale, "activation_scale": row}
    factor = scale.double() * row[:, None]
    check("DequantBias", {"out": (product + bias) * factor}, **given, bias=bias)
    check("DequantBias", {"out": product * factor + offset}, **given, bias=offset)


DYNAMIC = ["DynamicQuantV2", "DynamicQuantV3", "DynamicQuantV4"]


@pytest.mark.parametrize(
    ("name", "grouped"), [("DynamicQuant", False), *itertools.product(DYNAMIC, (False, True))]
)
def test_dynamic_quantisation(name: str, grouped: bool) -> None:
    x = real(2, 3, 4)
    groups = {"group_index": torch.tensor([2, 2, 6], dtype=torch.int32)} if grouped else {}
    smooth = positive(3, 4) if groups else positive(4)
    factor = smooth[torch.tensor([0, 0, 2, 2, 2, 2])].view(2, 3, 4) if groups else smooth
    value = x.double() * factor
    y, scale = by_row(value)
    later = {"quant_mode": "pertoken", "symmetrical": True} if name in DYNAMIC[1:] else {}
    given = {"x": x, "smooth_scales": smooth, **groups}
    check(name, {"y": y, "scale": scale}, **given, **later)
    if name == "DynamicQuant":
        return
    spread = (value.amax(-1, keepdim=True) - value.amin(-1, keepdim=True)) / 255
    offset = 127 - value.amax(-1, keepdim=True) / spread
    later |= {"symmetrical": False} if later else {}
    expected = {"y": quantised(value / spread + offset), "scale": spread[..., 0], "offset": offset[..., 0]}
    check(name, expected, 1e-4, **given, **later)
    if later and not groups:
        y, scale = by_row(value, -2)
        check(name, {"y": y, "scale": scale}, **given, quant_mode="perchannel", symmetrical=True)
        scale = value.abs().amax() / 127
        expected = {"y": quantised(value / scale), "scale": scale.reshape(1)}
        check(name, expected, **given, quant_mode="pertensor", symmetrical=True)


@pytest.mark.parametrize("symmetric", [True, False])
def test_dynamic_quantisation_to_packed_int4(symmetric: bool) -> None:
    x, y, scale, offset = real(3, 16), torch.zeros(3, 2, dtype=torch.int32), torch.zeros(3), torch.zeros(3)
    opapi.named("DynamicQuantV2", x=x, y=y, scale=scale, offset=None if symmetric else offset)
    wide = x.double()
    expected = (wide.abs().amax(-1) / 7) if symmetric else (wide.amax(-1) - wide.amin(-1)) / 15
    first = torch.zeros(3) if symmetric else 7 - wide.amax(-1) / expected
    torch.testing.assert_close(scale, expected.float())
    torch.testing.assert_close(offset, first.float())
    numbers = torch.stack([(y.long() >> 4 * i) & 15 for i in range(8)], -1).flatten(1)
    codes = quantised(wide / expected[:, None] + first[:, None], -8, 7)
    assert torch.equal(((numbers + 8) % 16 - 8).to(codes.dtype), codes)
    message = refused("DynamicQuantV2", x[:, :4], None, None, torch.int32, y, scale, None)
    assert "x has 4 columns, expected a multiple of 8 for int4" in message


def test_a_row_of_zeros_stays_zero() -> None:
    expected = {"y": torch.zeros(2, 4, dtype=torch.int8), "scale": torch.zeros(2)}
    check("DynamicQuant", expected, x=torch.zeros(2, 4))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_dynamic_quantisation_to_eight_bit_floats(dtype: torch.dtype) -> None:
    x, y, scale = real(3, 8), torch.zeros(3, 8, dtype=dtype), torch.zeros(3)
    opapi.named("DynamicQuantV2", x=x, y=y, scale=scale)
    expected = x.abs().amax(-1) / torch.finfo(dtype).max
    torch.testing.assert_close(scale, expected)
    assert torch.equal(y.float(), (x / expected[:, None]).to(dtype).float())


def test_quantisation_by_groups() -> None:
    x, scale, offset = real(5, 4), positive(3, 4) * 60, real(1)
    rows = scale[torch.tensor([0, 0, 2, 2, 2])]
    ends = torch.tensor([2, 2, 5], dtype=torch.int32)
    y = quantised(x.double() * rows + offset)
    check("GroupQuant", {"y": y}, x=x, scale=scale, offset=offset, group_index=ends)


def gated(
    x: torch.Tensor, left: bool, mode: int = 0, limit: float = 1.0, alpha: float = 1.7, bias: float = 0.5
) -> torch.Tensor:
    """Return SwiGLU, or the one with limits, of alternating columns in mode 1."""
    gate, linear = (
        (x[..., ::2], x[..., 1::2]) if mode == 1 else x.chunk(2, -1) if left else x.chunk(2, -1)[::-1]
    )
    if mode == 0:
        return F.silu(gate) * linear
    gate, linear = gate.clamp(max=limit), linear.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (linear + bias)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize("left", [False, True])
def test_swiglu_of_dequantised_values_quantised(mode: int, kind: str, left: bool) -> None:
    x = whole(5, 8, low=-300, high=300).to(torch.int32)
    weight_scale, row, bias = positive(2, 8) / 100, positive(5), whole(2, 8, high=50).to(torch.int32)
    quant_scale, quant_offset = positive(2, 4) / 30, real(2, 4) * 20
    group = torch.tensor([0, 0, 1, 1, 1])
    value = (x + bias[group]) * weight_scale[group].double() * row[:, None]
    y = gated(value, left, mode)
    given = {"x": x, "weight_scale": weight_scale, "activation_scale": row, "bias": bias}
    given |= {
        "quant_scale": quant_scale,
        "group_index": torch.tensor([2, 3]),
        "activate_left": left,
        "quant_mode": kind,
    }
    if kind == "dynamic":
        codes, scale = by_row(y * quant_scale[group])
        expected = {"y": codes, "scale": scale}
    else:
        given["quant_offset"] = quant_offset
        expected = {"y": quantised(y / quant_scale[group] + quant_offset[group])}
    options = {"swiglu_mode": mode, "clamp_limit": 1.0, "glu_alpha": 1.7, "glu_bias": 0.5}
    check("DequantSwigluQuantV2", expected, **given, **options, activate_dim=-1, round_mode="rint")
    if mode == 0:
        check("DequantSwigluQuant", expected, **given)
        plain = real(3, 8)
        codes, scale = by_row(gated(plain.double(), left) * quant_scale[0])
        given = {"x": plain, "quant_scale": quant_scale[:1], "activate_left": left, "quant_mode": "dynamic"}
        check("DequantSwigluQuant", {"y": codes, "scale": scale}, **given)


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_swiglu_quantised(counts: bool, kind: str) -> None:
    x, smooth, offset = real(5, 8), positive(2, 4) * 40, real(2, 4)
    group = torch.tensor([0, 0, 1, 1, 1])
    y = gated(x.double(), False) * smooth[group] + (offset[group] if kind == "static" else 0)
    index = torch.tensor([2, 3] if counts else [2, 5], dtype=torch.int32)
    scale = 127 / y.abs().amax(-1)
    dynamic = {"y": quantised(y * scale[:, None]), "scale": scale}
    given = {"x": x, "smooth_scales": smooth, "offsets": offset, "group_index": index}
    expected = {"y": quantised(y)} if kind == "static" else dynamic
    check("SwiGluQuantV2", expected, **given, quant_mode=kind, group_list_type=int(counts))


def test_gelu_quantised() -> None:
    x, scale, offset = real(3, 4), positive(4) * 60, real(4)
    y = quantised(F.gelu(x.double()) * scale + offset)
    given = {"x": x, "scale": scale, "round_mode": "rint"}
    check("GeluQuant", {"y": y}, **given, offset=offset, approximate="none", quant_mode="static")
    codes, total = by_row(F.gelu(x.double(), approximate="tanh") * scale)
    check("GeluQuant", {"y": codes, "out_scale": total}, **given, approximate="tanh", quant_mode="dynamic")


@pytest.mark.parametrize("interleaved", [False, True])
def test_swiglu_with_limits(interleaved: bool) -> None:
    x, out = real(3, 4, 8), torch.full((3, 4, 4), 7.0)
    options = {"glu_alpha": 1.7, "clamp_limit": 1.0, "glu_bias": 0.5, "interleaved": interleaved}
    y = gated(x.double(), True, 1 if interleaved else 2)
    check("ClippedSwiglu", {"out": y}, x=x, dim=-1, **options)
    opapi.named("ClippedSwiglu", x=x, group_index=torch.tensor([4, 3]), dim=2, out=out, **options)
    torch.testing.assert_close(out.flatten(0, 1)[:7], y.float().flatten(0, 1)[:7], rtol=1e-5, atol=1e-5)
    assert (out.flatten(0, 1)[7:] == 7).all()


@pytest.mark.parametrize("name", ["TransQuantParamV2", "TransQuantParamV3"])
def test_bits_of_a_quantisation_parameter(name: str) -> None:
    scale, offset = real(5), torch.tensor([-300.0, 300.0, -1.0, 2.5, 0.0])
    bits = scale.contiguous().view(torch.int32).long() & 0xFFFFE000 | 1 << 46
    check(name, {"out": bits}, scale=scale)
    parts = torch.tensor([-256, 255, -1, 2, 0]) & 0x1FF
    check(name, {"out": bits & 0x4000FFFFFFFF | parts << 37}, scale=scale, offset=offset)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_groups_divided_by_their_scales(dtype: torch.dtype) -> None:
    x, scale = real(5, 2, 4), positive(3)
    y, amax = torch.zeros(5, 2, 4, dtype=dtype), torch.ones(3)
    ends = torch.tensor([2, 2, 5], dtype=torch.int32)
    opapi.named("GroupedQuantMax", x=x, scale=scale, group_list=ends, round_mode="rint", y=y, amax=amax)
    expected = x / scale[torch.tensor([0, 0, 2, 2, 2])][:, None, None]
    assert torch.equal(y.float(), expected.to(dtype).float())
    assert torch.equal(amax, torch.stack([x[:2].abs().max(), torch.tensor(0.0), x[2:].abs().max()]))
