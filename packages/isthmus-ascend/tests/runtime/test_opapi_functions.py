"""Rows that functions of csrc/opapi/functions compute, against PyTorch's own derivative or definition."""

import pytest
import torch
from torch.nn import functional as F

from tests.runtime import opapi
from tests.runtime.opapi import check, gradients
from tests.runtime.tensors import leaf, positive, real, whole
from tests.runtime.test_opapi_errors import refused


def equal(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected.to(actual.dtype), rtol=tolerance, atol=tolerance)


def test_rms_norm() -> None:
    x, gamma, dy = leaf(2, 3, 4), leaf(3, 4), real(2, 3, 4)
    y = F.rms_norm(x, (3, 4), gamma, 1e-3)
    rstd = x.square().mean((1, 2), keepdim=True).add(1e-3).rsqrt()
    check("RmsNorm", {"y": y, "rstd": rstd}, self=x, gamma=gamma, epsilon=1e-3)
    check("RmsNormGrad", gradients(y, dy, dx=x, dgamma=gamma), dy=dy, self=x, rstd=rstd, gamma=gamma)


def test_rms_norm_of_a_sum_and_with_an_offset() -> None:
    x1, x2, gamma, rstd = real(2, 3, 4), real(2, 3, 4), real(4), torch.zeros(2, 3, 1)
    y, given = F.rms_norm(x1 + x2, (4,), gamma, 1e-3), {"gamma": gamma, "epsilon": 1e-3, "rstd": rstd}
    check("AddRmsNorm", {"x": x1 + x2, "y": y}, x1=x1, x2=x2, **given)
    check("GemmaRmsNorm", {"y": F.rms_norm(x1, (4,), gamma + 1, 1e-3)}, self=x1, **given)


@pytest.mark.parametrize("mode", [0, 1])
def test_rotary(mode: int) -> None:
    x, cos, sin = leaf(2, 3, 4, 6), leaf(1, 3, 1, 6), leaf(1, 3, 1, 6)
    pairs = x.unflatten(-1, (2, -1)).mT if mode == 0 else x.unflatten(-1, (-1, 2))
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * 1j)
    expected = x * cos + (turned.mT if mode == 0 else turned).flatten(-2) * sin
    dy, given = real(2, 3, 4, 6), {"cos": cos, "sin": sin, "mode": mode}
    for name in ("RotaryPositionEmbedding", "RotaryPositionEmbeddingV2"):
        check(name, {"out": expected}, self=x, **given)
    grads = gradients(expected, dy, dx=x, dcos=cos, dsin=sin)
    check("RotaryPositionEmbeddingGrad", grads, grad=dy, x=x, **given)


def test_fast_gelu() -> None:
    x, dy = leaf(3, 4), real(3, 4)
    y = x * torch.sigmoid(1.702 * x)
    check("FastGelu", {"out": y}, self=x)
    check("FastGeluBackward", gradients(y, dy, out=x), grad=dy, self=x)


@pytest.mark.parametrize("dim", [0, -1])
def test_swiglu(dim: int) -> None:
    x = leaf(4, 6)
    first, second = x.chunk(2, dim)
    y = F.silu(first) * second
    dy = real(*y.shape)
    check("SwiGlu", {"out": y}, self=x, dim=dim)
    check("SwiGluGrad", gradients(y, dy, out=x), grad_output=dy, self=x, dim=dim)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("name", ["Scatter", "ScatterValue", "InplaceScatter", "InplaceScatterValue"])
def test_scatter(name: str, mode: int) -> None:
    x, index = real(3, 4), torch.tensor([[3, 0], [1, 2], [0, 3]])
    source = 0.7 if "Value" in name else real(3, 2)
    expected = x.clone()
    for i in range(3):
        for j in range(2):
            value = source if isinstance(source, float) else float(source[i, j])
            at = (i, int(index[i, j]))
            expected[at] = {0: value, 1: float(expected[at]) + value, 2: float(expected[at]) * value}[mode]
    out = [] if "Inplace" in name else [torch.zeros(3, 4)]
    opapi.call(name, x, 1, index, source, mode, *out)
    equal(out[0] if out else x, expected)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis: int) -> None:
    index = whole(3, 4, high=5)
    expected = F.one_hot(index, 5).movedim(-1, axis) * 4 - 1
    out = torch.zeros(expected.shape, dtype=torch.int64)
    opapi.call("OneHot", index, 5, torch.tensor([3]), torch.tensor([-1]), axis, out)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_gradients_of_losses(reduction: int) -> None:
    kind = ("none", "mean", "sum")[reduction]
    x, target, dy = leaf(3, 4), positive(3, 4), real(3, 4) if reduction == 0 else real()
    given = {"grad_output": dy, "self": x, "target": target, "reduction": reduction}
    for weights in ({}, {"weight": positive(3, 4), "pos_weight": positive(4)}):
        loss = F.binary_cross_entropy_with_logits(x, target, reduction=kind, **weights)
        check("BinaryCrossEntropyWithLogitsBackward", gradients(loss, dy, out=x), **given, **weights)
    check("L1LossBackward", gradients(F.l1_loss(x, target, reduction=kind), dy, grad=x), **given)
    for log_target in (False, True):
        loss = F.kl_div(x, target, reduction=kind, log_target=log_target)
        check("KlDivBackward", gradients(loss, dy, out=x), **given, log_target=log_target)


@pytest.mark.parametrize("amsgrad", [False, True])
def test_fused_adamw_has_the_bits_of_the_cpu(amsgrad: bool) -> None:
    parameter = torch.nn.Parameter(real(3, 4).contiguous())
    optimizer = torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.1, amsgrad=amsgrad, fused=True)
    ours = parameter.detach().clone()
    state = [torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(3, 4) if amsgrad else None]
    for step in range(3):
        parameter.grad = real(3, 4).contiguous()
        gradient = parameter.grad.clone()
        optimizer.step()
        opapi.call("ApplyAdamWV2", ours, *state, gradient, torch.tensor([float(step)]),
                   1e-3, 0.9, 0.999, 0.1, 1e-8, amsgrad, False)  # fmt: skip
    assert torch.equal(ours, parameter.detach())


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_sgd_computes_in_float32(dtype: torch.dtype, nesterov: bool) -> None:
    parameter, gradient, momentum = (real(3, 4).contiguous().to(dtype) for _ in range(3))
    slope = gradient.float() + 0.1 * parameter.float()
    moved = 0.9 * momentum.float() + 0.5 * slope
    expected = parameter.float() - 1e-2 * (slope + 0.9 * moved if nesterov else moved)
    opapi.call("FusedSgd", [parameter], [gradient], [momentum], None,
               0.1, 0.9, 1e-2, 0.5, nesterov, False, False)  # fmt: skip
    equal(momentum, moved.to(dtype))
    equal(parameter, expected.to(dtype))


def test_dropout() -> None:
    mask, y, x = torch.zeros(128, dtype=torch.uint8), torch.zeros(30, 30), real(30, 30) + 5
    for name, dtype in (("DropoutGenMask", []), ("DropoutGenMaskV2", [torch.float32])):
        opapi.call(name, [30, 30], 0.25, 7, 1, *dtype, mask)
    again, later = torch.zeros_like(mask), torch.zeros_like(mask)
    for offset, result in ((1, again), (2, later)):  # offsets of a captured graph, added to the generator's
        tensors = torch.tensor([7]), torch.tensor([0])
        opapi.call("DropoutGenMaskV2Tensor", [900], 0.25, *tensors, offset, torch.float32, result)
    opapi.call("DropoutDoMask", x, mask, 0.25, y)
    kept = y != 0
    equal(y[kept], x[kept] / 0.75)
    assert 0.7 < kept.float().mean() < 0.8
    bits = torch.stack([(mask >> bit) & 1 for bit in range(8)], 1).flatten()[:900].reshape(30, 30)
    assert torch.equal(bits.bool(), kept)
    assert torch.equal(again, mask) and later.any() and not torch.equal(later, mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("place", [[0], [1], [0, 1]])
@pytest.mark.parametrize("chosen", [[], [2, 0]])
def test_index_of_nothing(dtype: torch.dtype, place: list[int], chosen: list[int]) -> None:
    """An undefined index and one without elements have the same shape."""
    x, undefined = torch.arange(12).view(3, 4).to(dtype), torch.empty(0, dtype=dtype)
    indices = [torch.tensor(chosen, dtype=torch.int64) if i in place else undefined for i in range(2)]
    key = tuple(indices[i] if i in place else slice(None) for i in range(2))
    out = torch.zeros(x[key].shape, dtype=dtype)
    opapi.call("Index", x, indices, out)
    equal(out, x[key])
    expected, values = x.clone(), out + 1
    expected[key] = values
    opapi.call("IndexPutImpl", x, indices, values, False, False)
    equal(x, expected)


def test_index_of_one_and_of_nothing() -> None:
    """Indices of one element and of none are broadcast to none: the second is not an undefined one."""
    x, indices = torch.rand(3, 4, 5), [torch.tensor([1]), torch.tensor([], dtype=torch.int64)]
    out = torch.zeros(0, 5)
    opapi.call("Index", x, indices, out)
    equal(out, x[tuple(indices)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_mask_without_elements(dtype: torch.dtype) -> None:
    x, mask = torch.zeros(0, dtype=dtype), torch.zeros(0, dtype=torch.bool)
    opapi.call("IndexPutImpl", x, [mask], torch.ones((), dtype=dtype), False, False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_floats_without_a_kernel_of_the_cpu_are_computed_in_float32(dtype: torch.dtype) -> None:
    x, y = real(3, 4).to(dtype), real(5, 4).to(dtype)
    out = torch.zeros(3, 10, dtype=dtype)[:, ::2]
    opapi.call("Cdist", x, y, 2.0, 0, out)
    assert torch.equal(out, torch.cdist(x.float(), y.float()).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
def test_add_relu(dtype: torch.dtype) -> None:
    x, y = (real(3, 4) * 4).to(dtype), (real(3, 4) * 4).to(dtype)
    expected = (x + y * 3).relu()
    out = torch.zeros(3, 4, dtype=dtype)
    opapi.call("AddRelu", x, y, 3, out)
    opapi.call("InplaceAddRelu", x, y, 3)
    assert torch.equal(out, expected)
    assert torch.equal(x, expected)


def test_an_output_without_elements_is_left_out() -> None:
    weight, indices, offsets = real(8, 4), whole(6), torch.tensor([0, 2])
    out, empty, counts = torch.zeros(2, 4), torch.zeros(0, dtype=torch.int64), whole(2)
    opapi.call(
        "EmbeddingBag", weight, indices, offsets, False, 0, False, None, False, -1, out, empty, counts, counts
    )
    equal(out, F.embedding_bag(indices, weight, offsets, mode="sum"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_an_index_without_elements_selects_none(dtype: torch.dtype) -> None:
    x, out = real(3, 4).to(dtype), torch.ones(0, 4, dtype=dtype)
    opapi.call("Index", x, [torch.zeros(0, dtype=torch.int64)], out)


def test_normal_numbers_as_integers() -> None:
    x = torch.zeros(2000, dtype=torch.int32)
    opapi.call("InplaceNormal", x, 100.0, 10.0, 7, 1)
    assert abs(x.float().mean() - 100) < 1
    assert abs(x.float().std() - 10) < 1


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_integers_are_divided_in_place(dtype: torch.dtype) -> None:
    # torch_npu averages over ranks so.
    x = torch.tensor([0, 4, 6, 9], dtype=dtype)
    opapi.call("InplaceDivs", x, 2)
    assert x.tolist() == [0, 2, 3, 4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_sums_and_differences_of_lists(dtype: torch.dtype) -> None:
    x, y = ([(real(*shape) * 8).to(dtype) for shape in ((9, 7), (3,))] for _ in range(2))
    wide = torch.float32 if dtype == torch.bfloat16 else dtype
    pairs = list(zip(x, y, strict=True))
    sums = [a.to(wide).add(b.to(wide), alpha=5).to(dtype) for a, b in pairs]
    half = dtype == torch.float16
    differences = [a - b * 5 if half else a.to(wide).sub(b.to(wide), alpha=5).to(dtype) for a, b in pairs]
    for name, alpha, expected in (
        ("ForeachAddList", torch.tensor(5, dtype=wide), sums),
        ("ForeachAddListV2", 5, sums),
        ("ForeachSubList", torch.tensor(5, dtype=wide), differences),
        ("ForeachSubListV2", 5, differences),
    ):
        out = [torch.zeros_like(a) for a in x]
        opapi.call(name, x, y, alpha, out)
        assert all(map(torch.equal, out, expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("divides", [False, True])
def test_scaled_products_and_quotients(dtype: torch.dtype, divides: bool) -> None:
    """float16 is rounded after each operation."""
    x, y, z = ([real(40).to(dtype) for _ in range(3)] for _ in range(3))
    values = torch.tensor([3.0, -2.0, 5.0], dtype=torch.float32)
    meaning = torch.addcdiv if divides else torch.addcmul

    def expected(i: int, value: float) -> torch.Tensor:
        if dtype == torch.float16:
            return x[i] + (y[i] / z[i] if divides else y[i] * z[i]) * value
        return meaning(x[i], y[i], z[i], value=value)

    products = "ForeachAddcmulScalar", "ForeachAddcmulScalarV2", "ForeachAddcmulScalarList"
    quotients = "ForeachAddcdivScalar", "ForeachAddcdivScalarV2", "ForeachAddcdivScalarList"
    arguments = (torch.tensor([7.0]), [7.0] * 3), (7.0, [7.0] * 3), (values, values.tolist())
    for name, (given, factors) in zip(quotients if divides else products, arguments, strict=True):
        out = [torch.zeros_like(a) for a in x]
        opapi.call(name, x, y, z, given, out)
        for i, one in enumerate(out):
            assert torch.equal(one, expected(i, factors[i]))
    wanted, out = expected(0, 7.0), torch.zeros_like(x[0])
    opapi.call("Addcdiv" if divides else "Addcmul", x[0], y[0], z[0], 7.0, out)
    opapi.call("InplaceAddcdiv" if divides else "InplaceAddcmul", x[0], y[0], z[0], 7.0)
    assert torch.equal(out, wanted) and torch.equal(x[0], wanted)


def test_products_of_lists_refuse_other_counts() -> None:
    x = [torch.ones(2)] * 2
    assert "there are 3 values, expected 2" in refused("ForeachAddcmulScalarList", x, x, x, torch.ones(3), x)
    assert "the lists have 2, 1 and 2 tensors" in refused("ForeachAddcdivScalarV2", x, x[:1], x, 1.0, x)


def test_hardsigmoid_of_integers() -> None:
    x, out = torch.arange(-5, 6), torch.zeros(11, dtype=torch.int64)
    opapi.call("Hardsigmoid", x, out)
    opapi.call("InplaceHardsigmoid", x)
    assert out.tolist() == x.tolist() == [0] * 8 + [1] * 3


@pytest.mark.parametrize("name", ["InplaceFillScalar", "InplaceFillTensor"])
def test_fill_of_an_expanded_tensor(name: str) -> None:
    memory = torch.zeros(3, 4)
    value = 1.5 if name == "InplaceFillScalar" else torch.tensor(1.5)
    opapi.call(name, memory[:, 1].unsqueeze(1).expand(3, 5), value)
    opapi.call(name, memory[:, ::2], value)
    assert torch.equal(memory, torch.tensor([1.5, 1.5, 1.5, 0]).expand(3, 4))


@pytest.mark.parametrize("shape, count", [((2, 3, 4), 3), ((3, 4), 1), ((5,), 1), ((), 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_prelu_gradient(shape: tuple[int, ...], count: int, dtype: torch.dtype) -> None:
    """One slope for each channel, or one for all."""
    x, weight, dy = real(*shape).to(dtype), real(count).to(dtype), real(*shape).to(dtype)
    wide, slope = x.double().requires_grad_(), weight.double().requires_grad_()
    found = gradients(F.prelu(wide, slope), dy, grad=wide, grad_weight=slope)
    expected = {name: value.to(dtype) for name, value in found.items()}
    tolerance = 1e-5 if dtype == torch.float32 else 2e-3
    check("PreluBackward", expected, tolerance, grad_output=dy, self=x, reshape_weight=weight)


@pytest.mark.parametrize("p", [0, 1, 2.5])
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_renorm(p: float, dim: int, dtype: torch.dtype) -> None:
    x = real(3, 4, 5).to(dtype)
    x[0, 1:], x[..., 2] = 0, 0
    rows = x.double().movedim(dim, 0).flatten(1)
    norm = (rows != 0).sum(1) if p == 0 else torch.linalg.vector_norm(rows, p, dim=1)
    factor = (4 / norm).clamp(max=1).reshape([-1, 1, 1] if dim == 0 else [1, 1, -1])
    out = torch.zeros(3, 4, 5, dtype=dtype)
    opapi.call("Renorm", x, p, dim, 4, out)
    opapi.call("InplaceRenorm", x_too := x.clone(), p, dim, 4)
    torch.testing.assert_close(out, (x.double() * factor).to(dtype), rtol=1e-3, atol=1e-3)
    assert torch.equal(out, x_too)
    assert "self has 1 dimensions, expected at least 2" in refused("Renorm", x[0, 0], 0, 0, 1, out[0, 0])


def test_padding_before_and_after_each_dimension() -> None:
    x, weight, out = real(2, 3, 5, 6), real(4, 3, 3, 2), torch.zeros(2, 4, 3, 7)
    rest = [1, 1], False, [0, 0], 1, out, 0
    opapi.call("Convolution", x, weight, None, [2, 1], [1, 1, 1, 1], *rest)
    assert torch.equal(out, F.conv2d(x, weight, None, [2, 1], [1, 1]))
    message = refused("Convolution", x, weight, None, [2, 1], [1, 2, 1, 1], *rest)
    assert "padding is [1, 2, 1, 1], expected the same before and after" in message


@pytest.mark.parametrize("name", ["SoftmaxBackward", "LogSoftmaxBackward"])
def test_gradient_of_a_softmax_from_half_to_float(name: str) -> None:
    x, dy, out = real(3, 4).half(), real(3, 4), torch.zeros(3, 4, dtype=torch.float16)
    wide = x.double().requires_grad_()
    y = wide.softmax(1) if name == "SoftmaxBackward" else wide.log_softmax(1)
    opapi.call(name, dy, y.detach().float(), 1, out)
    equal(out, gradients(y, dy, x=wide)["x"].half(), 2e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_product_of_16_bit_floats_is_rounded_once(dtype: torch.dtype) -> None:
    x, out = real(20, 3).to(dtype), torch.zeros(3, dtype=dtype)
    opapi.call("ProdDim", x, 0, False, dtype, out)
    torch.testing.assert_close(out, x.float().prod(0).to(dtype), rtol=0, atol=0)
    opapi.call("Prod", x, dtype, total := torch.zeros((), dtype=dtype))
    torch.testing.assert_close(total, x.float().prod().to(dtype), rtol=0, atol=0)


def test_sign_of_complex_numbers() -> None:
    x = torch.complex(real(5), real(5))
    x[1], out = 0, torch.zeros(5, dtype=torch.complex64)
    opapi.call("Sign", x, out)
    torch.testing.assert_close(out, torch.where(x == 0, 0, x / x.abs()))


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
def test_integers_over_a_scalar_are_rounded_to_the_output(dtype: torch.dtype) -> None:
    x, out = torch.tensor([0, 1, 7, 9]).to(dtype), torch.zeros(4, dtype=torch.float16)
    opapi.call("Divs", x, 3, out)
    assert torch.equal(out, (x.double() / 3).half())
