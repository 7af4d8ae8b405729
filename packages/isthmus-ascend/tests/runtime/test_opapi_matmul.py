"""Products of quantised and of grouped matrices against sums in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.runtime import opapi
from tests.runtime.opapi import check, named
from tests.runtime.tensors import codes, positive, quantised, real, whole


def packed(scale: torch.Tensor) -> torch.Tensor:
    """Return scales as TransQuantParam packs them."""
    return scale.contiguous().view(torch.int32).long() & 0xFFFFE000 | 1 << 46


def unpacked(scale: torch.Tensor) -> torch.Tensor:
    return (scale & 0xFFFFFFFF).to(torch.int32).view(torch.float32).double()


@pytest.mark.parametrize("name", ["QuantMatmulV5", "QuantMatmulWeightNz"])
def test_product_of_codes(name: str) -> None:
    x1, x2, scale, row = codes(3, 40), codes(40, 5), positive(5) / 100, positive(3)
    bias = whole(5, high=99).to(torch.int32)
    sums = x1.double() @ x2.double()
    given = {"x1": x1, "x2": x2}
    scales = given | {"scale": scale, "row_scale": row}
    check(name, {"out": (sums + bias) * scale * row[:, None]}, **scales, bias=bias)
    y = sums * scale * row[:, None] + row.mean()
    check(name, {"out": y}, **scales, bias=row.mean().expand(5))
    bits, offset = packed(scale / 100), real(5)
    check(name, {"out": quantised(sums * unpacked(bits) + offset)}, **given, scale=bits, offset=offset)
    check(name, {"out": (sums + bias).to(torch.int32)}, **given, bias=bias)
    check(name, {"out": sums * scale}, x1=x1.T, x2=x2.T, scale=scale, transpose1=True, transpose2=True)
    with pytest.raises(ValueError, match="y_scale is not supported"):
        opapi.named(name, **given, y_scale=scale, out=torch.zeros(3, 5))


def test_sums_beyond_float32_are_exact() -> None:
    x1, x2 = torch.full((1, 70000), 127, dtype=torch.int8), torch.full((70000, 1), 127, dtype=torch.int8)
    x2[-1] = 1
    out = torch.tensor([[127 * 127 * 69999 + 127]], dtype=torch.int32)
    check("QuantMatmulV5", {"out": out}, x1=x1, x2=x2)


def test_products_summed_added_and_activated() -> None:
    x1, x2, scale, row = codes(2, 3, 40), codes(2, 40, 5), positive(5) / 100, positive(2, 3)
    product = x1.double() @ x2.double() * scale * row[..., None]
    given = {"x1": x1, "x2": x2, "scale": scale, "row_scale": row}
    check("QuantMatmulReduceSumWeightNz", {"out": product.sum(0)}, **given, dims=[0])
    start = real(2, 3, 5)
    check("QuantBatchMatmulInplaceAdd", {"self": start + product}, self=start, **given)
    for name in ("gelu_erf", "gelu_tanh"):
        y = F.gelu(product / 50, approximate="tanh" if name == "gelu_tanh" else "none")
        given["row_scale"] = row / 50
        check("FusedQuantMatmul", {"out": y}, **given, activation=name)
        check("FusedQuantMatmulWeightNz", {"out": y}, **given, activation=name)


@pytest.mark.parametrize(
    "name", ["WeightQuantBatchMatmulV2", "WeightQuantBatchMatmulV3", "WeightQuantBatchMatmulNz"]
)
@pytest.mark.parametrize("groups", [1, 4])
def test_product_with_a_weight_of_codes(name: str, groups: int) -> None:
    x, weight, bias = real(3, 8), codes(8, 5), real(5)
    scale, offset = positive(groups, 5) / 100, real(groups, 5) * 9
    rows = torch.arange(8) // (8 // groups)
    y = x.double() @ ((weight + offset[rows].double()) * scale[rows]) + bias
    given = {"x": x, "weight": weight, "antiquant_scale": scale, "antiquant_offset": offset, "bias": bias}
    check(name, {"out": y}, **given, group_size=8 // groups if groups > 1 else 0)
    factor, moved = positive(5) * 20, real(5)
    check(name, {"out": quantised(y * factor + moved)}, **given, quant_scale=factor, quant_offset=moved)


@pytest.mark.parametrize(
    "name", ["QuantMatmulDequant", "QuantGroupedMatmulDequant", "QuantGroupedMatmulDequantWeightNZ"]
)
@pytest.mark.parametrize("mode", ["pertoken", "pertensor", "given"])
def test_rows_quantised_for_a_product(name: str, mode: str) -> None:
    grouped = name != "QuantMatmulDequant"
    x, weight, smooth = real(5, 8), codes(2, 6, 8) if grouped else codes(6, 8), positive(8)
    scale = positive(2, 6) if grouped else positive(6)
    value = x.double() * smooth
    largest = value.abs().amax(-1 if mode == "pertoken" else None)
    row = (positive(5).double() / 60 if mode == "given" else largest / 127).reshape(-1, 1)
    quant = (value / row).round().clamp(-128, 127)
    group = torch.tensor([0, 0, 1, 1, 1])
    right = weight.double().mT
    product = torch.stack([quant[i] @ right[g] for i, g in enumerate(group)]) if grouped else quant @ right
    expected = product * (scale[group] if grouped else scale) * row
    given = {"x": x, "weight": weight, "weight_scale": scale, "smooth_scale": smooth, "transposed": True}
    given |= {"group_list": torch.tensor([2, 5])} if grouped else {}
    given |= {"quant_mode": "pertensor" if mode == "pertensor" else "pertoken"}
    check(name, {"out": expected}, 1e-4, **given, x_scale=row if mode == "given" else None)


TURNED = ["TransposeBatchMatMul", "TransposeBatchMatMulWeightNz"]
TURNED_QUANT = ["TransposeQuantBatchMatMul", "TransposeQuantBatchMatMulWeightNz"]


@pytest.mark.parametrize("name", [*TURNED, *TURNED_QUANT])
def test_product_of_turned_batches(name: str) -> None:
    quant = name in TURNED_QUANT
    x1, x2 = (codes(3, 2, 8), codes(2, 8, 4)) if quant else (real(3, 2, 8), real(2, 8, 4))
    product = x1.double().transpose(0, 1) @ x2.double()
    given = {"x1": x1, "x2": x2, "perm_x1": [1, 0, 2], "perm_x2": [0, 1, 2], "perm_y": [1, 0, 2]}
    if quant:
        column, row = positive(4), positive(3)
        y = (product * column * row[:, None]).transpose(0, 1)
        check(name, {"out": y}, **given, x1_scale=row, x2_scale=column, batch_split_factor=1)
        return
    bias, scale = real(2, 4), positive(8) * 20
    y = (product + bias[:, None]).transpose(0, 1)
    given["bias"] = bias
    check(name, {"out": y}, **given, batch_split_factor=1)
    check(name, {"out": y.reshape(3, 2, 4).transpose(0, 1)}, **given, batch_split_factor=2)
    check(name, {"out": quantised(y.reshape(3, 1, 8) * scale)}, **given, scale=scale, batch_split_factor=1)


@pytest.mark.parametrize("kind", ["", "add", "mul", "gelu_erf", "gelu_tanh", "relu", "16cast32"])
def test_fused_product(kind: str) -> None:
    x1, x2, x3 = real(3, 4), real(4, 5), real(3, 5)
    product = x1.double() @ x2.double()
    meaning: dict[str, Callable[[], torch.Tensor]] = {
        "add": lambda: product + x3,
        "mul": lambda: product * x3,
        "gelu_erf": lambda: F.gelu(product),
        "gelu_tanh": lambda: F.gelu(product, approximate="tanh"),
        "relu": lambda: F.relu(product),
    }
    expected = {"out": meaning.get(kind, lambda: product)()}
    check("FusedMatmul", expected, x1=x1, x2=x2, x3=x3 if kind in ("add", "mul") else None, fused_type=kind)


@pytest.mark.parametrize("low_rank", [False, True])
def test_adapters_added(low_rank: bool) -> None:
    y, x, index = real(4, 9), real(4, 6), torch.tensor([1, -1, 0, 1], dtype=torch.int32)
    a, b = real(2, 3, 5, 6), real(2, 3, 7, 5 if low_rank else 6)
    expected = y.double()
    for i, which in enumerate(index.tolist()):
        if which >= 0:
            row = x[i].double()
            row = a[which, 1].double() @ row if low_rank else row
            expected[i, 2:9] += 0.5 * (b[which, 1].double() @ row)
    given = {"self": y, "x": x, "weight_b": b, "indices": index, "weight_a": a if low_rank else None}
    check("AddLora", {"out": expected}, **given, layer_idx=1, scale=0.5, y_offset=2, y_slice_size=7)


GROUPED = ["GroupedMatmulV4", "GroupedMatmulV5", "GroupedMatmulWeightNz"]
GROUP = torch.tensor([0, 0, 2, 2, 2])  # groups of five rows; group 1 has none


def lists(name: str, kind: int) -> dict[str, Any]:
    return {"group_list": torch.tensor([[2, 2, 5], [2, 0, 3]][kind])} | {"group_list_type": kind}


@pytest.mark.parametrize("name", ["GroupedMatmul", *GROUPED])
@pytest.mark.parametrize("one_weight", [False, True])
def test_products_by_groups_of_rows(name: str, one_weight: bool) -> None:
    x, weight, bias = real(5, 4), real(3, 4, 6), real(3, 6)
    expected = torch.stack([x[i].double() @ weight[g].double() + bias[g] for i, g in enumerate(GROUP)])
    first = name == "GroupedMatmul"
    options = {"group_list": [2, 2, 5]} if first else lists(name, 1) | {"group_type": 0, "act_type": 5}
    weights, biases = ([weight], [bias]) if one_weight else (list(weight), list(bias))
    given = {"x": [x], "weight": weights, "bias": biases}
    out = expected if first else F.silu(expected)
    check(name, {"out": [out]}, **given, **options, split_item=3)
    if first:
        pairs = [real(2, 4), real(3, 4)]
        outs = [a.double() @ b.double() for a, b in zip(pairs, weight[:2], strict=True)]
        check(name, {"out": outs}, x=pairs, weight=list(weight[:2]))
        check(name, {"out": [out[:2], out[2:2], out[2:]]}, **given, **options, split_item=1)


@pytest.mark.parametrize("name", GROUPED)
def test_products_by_groups_of_columns_and_of_pairs(name: str) -> None:
    x, weight = real(4, 5), real(5, 6)
    parts = [(0, 2), (2, 2), (2, 5)]
    expected = torch.stack([x[:, a:b].double() @ weight[a:b].double() for a, b in parts])
    check(name, {"out": [expected]}, x=[x], weight=[weight], **lists(name, 0), group_type=2, split_item=3)
    rows, listed = real(5, 4), torch.tensor([[2, 3], [0, 2]])
    weights = real(3, 4, 6)
    expected = torch.stack([rows[i].double() @ weights[g].double() for i, g in enumerate(GROUP)])
    options = {"group_list": listed, "group_list_type": 2, "split_item": 3}
    check(name, {"out": [expected]}, x=[rows], weight=[weights], **options)


@pytest.mark.parametrize("name", GROUPED)
def test_products_of_codes_by_groups(name: str) -> None:
    x, weight, scale, row = codes(5, 8), codes(3, 8, 6), positive(3, 6) / 100, positive(5)
    bias = whole(3, 6, high=99).to(torch.int32)
    sums = torch.stack([x[i].double() @ weight[g].double() for i, g in enumerate(GROUP)])
    given = {"x": [x], "weight": [weight], "scale": [scale], **lists(name, 0), "split_item": 3}
    y = (sums + bias[GROUP]) * scale[GROUP] * row[:, None]
    check(name, {"out": [y]}, **given, bias=[bias], row_scale=[row])
    check(name, {"out": [quantised(sums * scale[GROUP] / 9)]}, **(given | {"scale": [scale / 9]}))
    rows, offset, factor = real(5, 8), real(3, 6), positive(3, 6) / 100
    expected = torch.stack(
        [rows[i].double() @ ((weight[g] + offset[g].double()) * factor[g]) for i, g in enumerate(GROUP)]
    )
    given = {"x": [rows], "weight": [weight], "antiquant_scale": [factor], "antiquant_offset": [offset]}
    check(name, {"out": [expected]}, **given, **lists(name, 0), split_item=3)


@pytest.mark.parametrize("name", ["GroupedMatmulAdd", "GroupedMatmulAddV2"])
def test_products_of_groups_of_rows_added(name: str) -> None:
    x, weight, start = real(5, 4), real(5, 6), real(3, 4, 6)
    expected = start.double()
    for g, (a, b) in enumerate([(0, 2), (2, 2), (2, 5)]):
        expected[g] += x[a:b].double().T @ weight[a:b].double()
    kind = int(name == "GroupedMatmulAddV2")
    options = lists(name, kind) if kind else {"group_list": torch.tensor([2, 2, 5])}
    check(name, {"self": expected}, x=x, weight=weight, self=start, group_type=2, transpose_x=True, **options)


ROUTED = [
    "GroupedMatmulFinalizeRoutingWeightNz",
    "GroupedMatmulFinalizeRoutingV2",
    "GroupedMatmulFinalizeRoutingV3",
    "GroupedMatmulFinalizeRoutingWeightNzV2",
]


@pytest.mark.parametrize("name", ROUTED)
def test_products_sent_to_their_rows(name: str) -> None:
    x, weight, scale, row, logit = codes(5, 8), codes(3, 8, 6), positive(3, 6) / 100, positive(5), positive(5)
    target, shared = torch.tensor([2, 0, 2, 1, 3]), real(2, 6)
    expected = torch.zeros(4, 6, dtype=torch.float64)
    for i, g in enumerate(GROUP):
        expected[target[i]] += x[i].double() @ weight[g].double() * scale[g] * row[i] * logit[i]
    expected[1:3] += 0.5 * shared
    given = {"x": x, "weight": weight, "scale": scale, "row_scale": row, "logit": logit, "row_index": target}
    given |= {"shared_input": shared, "shared_input_weight": 0.5, "shared_input_offset": 1}
    check(name, {"out": expected}, **given, **lists(name, 1))


@pytest.mark.parametrize(
    "name",
    ["GroupedMatmulSwigluQuantWeightNZ", "GroupedMatmulSwigluQuantV2", "GroupedMatmulSwigluQuantWeightNzV2"],
)
def test_swiglu_of_products_quantised(name: str) -> None:
    x, weight, scale, row = codes(5, 8), codes(3, 8, 6), positive(3, 6) / 1000, positive(5)
    sums = torch.stack([x[i].double() @ weight[g].double() * scale[g] * row[i] for i, g in enumerate(GROUP)])
    first, second = sums.chunk(2, -1)
    y = F.silu(first) * second
    factor = y.abs().amax(-1, keepdim=True) / 127
    expected = {"out": quantised(y / factor), "out_scale": factor[:, 0]}
    one = name == "GroupedMatmulSwigluQuantWeightNZ"
    weights = {"weight": weight, "scale": scale} if one else {"weight": [weight], "scale": [scale]}
    check(name, expected, x=x, **weights, row_scale=row, group_list=torch.tensor([2, 2, 5]))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", ["plain", "quantised", "codes"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "fastgelu"])
def test_feed_forward(grouped: bool, kind: str, activation: str) -> None:
    groups, group = (3, GROUP) if grouped else (1, torch.zeros(5, dtype=torch.int64))
    act: Callable[[torch.Tensor], torch.Tensor] = {
        "relu": F.relu,
        "gelu": F.gelu,
        "silu": F.silu,
        "fastgelu": lambda x: x * torch.sigmoid(1.702 * x),
    }[activation]
    x = codes(5, 8) if kind == "quantised" else real(5, 8)
    make = real if kind == "plain" else codes
    given: dict[str, torch.Tensor] = {"weight1": make(groups, 8, 6), "weight2": make(groups, 6, 4)}
    columns = {"1": 6, "2": 4}
    bias = {
        n: whole(groups, c, high=50).to(torch.int32) if kind == "quantised" else real(groups, c)
        for n, c in columns.items()
    }
    given |= {f"bias{n}": part for n, part in bias.items()}
    if kind == "quantised":
        given |= {f"deq_scale{n}": positive(groups, c) / 1000 for n, c in columns.items()}
        given |= {"scale": positive(groups, 1) * 40, "offset": real(groups, 1)}
    if kind == "codes":
        given |= {f"antiquant_scale{n}": positive(groups, c) / 100 for n, c in columns.items()}
        given |= {f"antiquant_offset{n}": real(groups, c) for n, c in columns.items()}
    rows = []
    for i, g in enumerate(group):
        row = x[i].double()
        for n in columns:
            weight = given[f"weight{n}"][g].double()
            if kind == "codes":
                weight = (weight + given[f"antiquant_offset{n}"][g]) * given[f"antiquant_scale{n}"][g]
            row = row @ weight + given[f"bias{n}"][g]
            row = row * given[f"deq_scale{n}"][g] if kind == "quantised" else row
            if n == "1":
                row = act(row)
                if kind == "quantised":
                    row = (row * given["scale"][g] + given["offset"][g]).round().clamp(-128, 127)
        rows.append(row)
    options: dict[str, Any] = {"expert_tokens": [2, 0, 3]} if grouped else {}
    inputs = given if grouped else {key: value[0] for key, value in given.items()}
    check("FFNV2", {"out": torch.stack(rows)}, 1e-4, x=x, **inputs, activation=activation, **options)


def test_feed_forward_rounds_to_float16() -> None:
    """Results between quantised products are rounded, and those of weights that are codes."""
    x, first, second = codes(5, 8), codes(8, 6), codes(6, 4)
    factors = {"deq_scale1": positive(6) / 10, "deq_scale2": positive(4) / 100, "scale": positive(1) * 5}
    middle = ((x.float() @ first.float()) * factors["deq_scale1"]).half().relu()
    middle = (middle * factors["scale"].half()).round().clamp(-128, 127)
    expected = ((middle.float() @ second.float()) * factors["deq_scale2"]).half()
    common = {"weight1": first, "weight2": second, "activation": "relu"}
    check("FFNV2", {"out": expected}, 1e-3, x=x, **common, **factors)

    x = real(5, 8).half()
    parts = {"scale1": positive(6), "offset1": real(6), "scale2": positive(4), "offset2": real(4)}
    parts = {name: part.half() for name, part in parts.items()}
    first, second = ((common[f"weight{i}"].half() + parts[f"offset{i}"]) * parts[f"scale{i}"] for i in (1, 2))
    expected = ((x.float() @ first.float()).relu() @ second.float()).half()
    parts = {f"antiquant_{name}": part for name, part in parts.items()}
    check("FFNV2", {"out": expected}, 1e-3, x=x, **common, **parts)


def test_convolution_of_codes() -> None:
    x, weight, scale = codes(2, 4, 6, 5), codes(6, 2, 3, 3), positive(6) / 100
    bias = whole(6, high=99).to(torch.int32)
    sums = F.conv2d(x.double(), weight.double(), bias.double(), (2, 1), (1, 1), (1, 1), 2)
    given = {"x": x, "weight": weight, "bias": bias, "strides": [2, 1], "pads": [1, 1], "dilations": [1, 1]}
    bits = packed(scale)
    for given_scale, factor in ((scale, scale.double()), (bits, unpacked(bits))):
        out = sums * factor[:, None, None]
        check("QuantConvolution", {"out": out}, **given, groups=2, scale=given_scale, output_padding=[0, 0])


def test_weights_in_blocks() -> None:
    x, weight, scale, row = codes(5, 32), codes(3, 32, 64), positive(3, 64) / 1000, positive(5)
    blocks = weight.view(3, 2, 16, 2, 32).permute(0, 3, 1, 2, 4).contiguous()
    results = []
    for given in (weight, blocks):
        out, factors = torch.zeros(5, 32, dtype=torch.int8), torch.zeros(5)
        named(
            "GroupedMatmulSwigluQuantWeightNzV2", x=x, weight=[given], scale=[scale], row_scale=row,
            group_list=torch.tensor([2, 2, 5]), out=out, out_scale=factors,
        )  # fmt: skip
        results.append((out, factors))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    with pytest.raises(ValueError, match="expected 3 dimensions, or 5 of blocks"):
        named("GroupedMatmulFinalizeRoutingV2", x=x, weight=weight[0], scale=scale, out=torch.zeros(5, 64))


@pytest.mark.parametrize("name", ["BatchMatMul", "BatchMatMulWeightNz"])
def test_products_of_batches_broadcast(name: str) -> None:
    one, many = real(1, 3, 4), real(5, 4, 6)
    check(name, {"out": one @ many}, self=one, mat2=many)
    check(name, {"out": many.mT @ one.mT}, self=many.mT, mat2=one.mT)
