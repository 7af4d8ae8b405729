"""Losses, masked softmax, batch norms over devices, optimizers and cells, against PyTorch and its derivatives."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.runtime import opapi
from tests.runtime.opapi import check, gradients, named
from tests.runtime.tensors import flags, leaf, positive, real, whole


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy(reduction: str, smoothing: float) -> None:
    x, target, weight = leaf(5, 4), torch.tensor([1, 0, 3, 2, 1]), positive(4)
    options = {"ignore_index": 2, "reduction": reduction, "label_smoothing": smoothing}
    loss = F.cross_entropy(x, target, weight.double(), **options)
    logs = F.log_softmax(x, -1)
    options |= {"target": target, "weight": weight}
    check("CrossEntropyLoss", {"loss": loss.reshape(-1), "log_prob": logs}, input=x, **options)
    dy = real(5) if reduction == "none" else real(1)
    expected = gradients(loss, dy.reshape(loss.shape), dx=x)
    check("CrossEntropyLossGrad", expected, grad_loss=dy, log_prob=logs, **options)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("log_target", [False, True])
def test_gradient_by_the_target(reduction: int, log_target: bool) -> None:
    x, target = real(3, 4), positive(3, 4).double().requires_grad_()
    kind = ("none", "mean", "sum")[reduction]
    loss = target.exp() * (target - x) if log_target else target * (target.log() - x)
    loss = {"none": loss, "mean": loss.mean(), "sum": loss.sum()}[kind]
    dy = real(3, 4) if reduction == 0 else real(1)[0]
    given = {"self": x, "target": target, "reduction": reduction, "log_target": log_target}
    check("KlDivTargetBackward", gradients(loss, dy, out=target), grad_output=dy, **given)


@pytest.mark.parametrize("fixed", [False, True])
def test_softmax_of_scaled_and_masked_values(fixed: bool) -> None:
    x, mask, dy = leaf(2, 3, 5, 5), flags(2, 1, 5, 5), real(2, 3, 5, 5)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1) if fixed else mask
    y = torch.softmax((x * 0.7).masked_fill(hidden, -10000), -1)
    given = {"mask": mask, "scale": 0.7, "fixed_triu_mask": fixed}
    check("ScaledMaskedSoftmax", {"y": y}, x=x, **given)
    check("ScaledMaskedSoftmaxBackward", gradients(y, dy, dx=x), dy=dy, y=y, **given)


def test_batch_norm_over_devices() -> None:
    x, weight, bias = leaf(4, 3, 5), real(3).double(), real(3).double()
    mean, variance = x.mean((0, 2)), x.var((0, 2), correction=0)
    invstd = (variance + 1e-3).rsqrt()
    check("BatchNormStats", {"mean": mean, "invstd": invstd}, input=x, eps=1e-3)
    check("BatchNormReduce", {"sum": x.sum((0, 2)), "square_sum": x.square().sum((0, 2))}, input=x)
    y = F.batch_norm(x, None, None, weight, bias, True, 0.1, 1e-3)
    given = {"input": x, "mean": mean, "invstd": invstd, "weight": weight}
    check("BatchNormElemt", {"out": y}, **given, bias=bias, eps=1e-3)
    dy = real(4, 3, 5)
    sums = {"sum_dy": dy.double().sum((0, 2)), "sum_dy_xmu": (dy * (x - mean[:, None])).sum((0, 2))}
    more = {"grad_weight": sums["sum_dy_xmu"] * invstd, "grad_bias": sums["sum_dy"]}
    given["grad_out"] = dy
    check("BatchNormReduceBackward", sums | more, **given, input_g=True, weight_g=True, bias_g=True)
    count = torch.tensor([8, 12], dtype=torch.int32)
    check("BatchNormElemtBackward", gradients(y, dy, out=x), **given, count=count, **sums)


@pytest.mark.parametrize("name", ["BatchNormGatherStatsWithCounts", "SyncBatchNormGatherStats"])
def test_statistics_of_all_devices(name: str) -> None:
    parts = [real(4, 3, 5).double(), real(2, 3, 5).double()]
    x = torch.cat(parts)
    mean, variance = x.mean((0, 2)), x.var((0, 2), correction=0)
    running = {"running_mean": real(3), "running_var": positive(3)}
    expected = {"mean_all": mean, "invstd_all": (variance + 1e-3).rsqrt()}
    expected["running_mean"] = running["running_mean"] * 0.9 + mean * 0.1
    expected["running_var"] = running["running_var"] * 0.9 + x.var((0, 2)) * 0.1
    given: dict[str, Any] = {"counts": torch.tensor([20, 10], dtype=torch.int32)} | running
    if name == "SyncBatchNormGatherStats":
        given["sum"] = torch.stack([p.sum((0, 2)) for p in parts])
        given["square_sum"] = torch.stack([p.square().sum((0, 2)) for p in parts])
    else:
        given |= {"mean": torch.stack([p.mean((0, 2)) for p in parts]), "input": x}
        given["invstd"] = torch.stack([(p.var((0, 2), correction=0) + 1e-3).rsqrt() for p in parts])
    check(name, expected, **given, momentum=0.1, eps=1e-3)


def scalars(**values: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor([value]) for name, value in values.items()}


@pytest.mark.parametrize("nesterov", [False, True])
def test_adam(nesterov: bool) -> None:
    var, m, v, grad = real(3, 4), real(3, 4), positive(3, 4), real(3, 4)
    m1, v1 = m.double() * 0.9 + grad * 0.1, v.double() * 0.99 + grad.double().square() * 0.01
    step = m1 * 0.9 + grad * 0.1 if nesterov else m1
    rate = 0.01 * (1 - 0.97) ** 0.5 / (1 - 0.8)
    expected = {"var": var - rate * step / (v1.sqrt() + 1e-3), "m": m1, "v": v1}
    numbers = scalars(beta1_power=0.8, beta2_power=0.97, lr=0.01, beta1=0.9, beta2=0.99, epsilon=1e-3)
    check("ApplyAdam", expected, var=var, m=m, v=v, grad=grad, use_nesterov=nesterov, **numbers)


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_adamw_with_powers(amsgrad: bool, maximize: bool) -> None:
    parameter = torch.nn.Parameter(real(3, 4).double())
    options = {"amsgrad": amsgrad, "maximize": maximize}
    optimizer = torch.optim.AdamW(
        [parameter], lr=0.01, betas=(0.9, 0.99), eps=1e-3, weight_decay=0.1, **options
    )
    parameter.grad = real(3, 4).double()
    optimizer.step()
    old = {key: value.clone() for key, value in optimizer.state[parameter].items()}
    before, grad = parameter.detach().clone(), real(3, 4)
    parameter.grad = grad.double()
    optimizer.step()
    new = optimizer.state[parameter]
    expected = {"var": parameter.detach(), "m": new["exp_avg"], "v": new["exp_avg_sq"]}
    given: dict[str, Any] = {"var": before, "m": old["exp_avg"], "v": old["exp_avg_sq"], "grad": grad}
    if amsgrad:
        expected["max_grad_norm"], given["max_grad_norm"] = new["max_exp_avg_sq"], old["max_exp_avg_sq"]
    numbers = scalars(
        beta1_power=0.9, beta2_power=0.99, lr=0.01, weight_decay=0.1, beta1=0.9, beta2=0.99, epsilon=1e-3
    )
    check("ApplyAdamW", expected, 1e-4, **given, **numbers, **options)


def test_lstm_cell() -> None:
    given = {name: leaf(3, 20) for name in ("input_gates", "hidden_gates")} | {"cx": leaf(3, 5)}
    given |= {name: leaf(20) for name in ("input_bias", "hidden_bias")}
    gates = given["input_gates"] + given["hidden_gates"] + given["input_bias"] + given["hidden_bias"]
    i, f, g, o = gates.chunk(4, 1)
    parts = [i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()]
    cy = parts[1] * given["cx"] + parts[0] * parts[2]
    hy, workspace = parts[3] * cy.tanh(), torch.cat(parts, 1)
    check("ThnnFusedLstmCell", {"hy": hy, "cy": cy, "workspace": workspace}, **given)
    dhy, dcy, cx = real(3, 5), real(3, 5), given["cx"]
    leaves = {"grad_gates": given["input_gates"], "grad_cx": cx, "grad_bias": given["input_bias"]}
    expected = gradients((hy, cy), (dhy, dcy), **leaves)
    saved = {"cx": cx, "cy": cy, "workspace": workspace, "has_bias": True}
    check("ThnnFusedLstmCellBackward", expected, grad_hy=dhy, grad_cy=dcy, **saved)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_one_half(left: bool, approximate: str) -> None:
    x = leaf(3, 8, 2)
    halves = x.chunk(2, 1)
    gate, linear = halves if left else halves[::-1]
    gelu = F.gelu(gate, approximate=approximate)
    options = {"dim": 1, "approximate": int(approximate == "tanh"), "activate_left": left}
    check("GeGluV3", {"out": gelu * linear, "gelu": gelu}, x=x, **options)
    dy = real(3, 4, 2)
    check("GeGluV3Backward", gradients(gelu * linear, dy, dx=x), dy=dy, x=x, gelu=gelu, **options)
    rows = real(3, 8)
    first, second = rows.double().chunk(2, -1)
    y = F.gelu(first, approximate=approximate) * second
    check("GeluMul", {"out": y}, x=rows, approximate_name=approximate)


@pytest.mark.parametrize("mode", [1, 2, 3, 5, 7])
def test_lists_rounded(mode: int) -> None:
    x = [real(3, 4) * 3, torch.tensor([0.5, 1.5, -2.5])]
    meaning = {1: torch.round, 2: torch.floor, 3: torch.ceil, 5: torch.trunc, 7: torch.frac}[mode]
    expected = [meaning(part) for part in x]
    check("ForeachRoundOffNumberV2", {"out": expected}, x=x, mode=mode)
    check("ForeachRoundOffNumber", {"out": expected}, x=x, mode_tensor=torch.tensor([mode], dtype=torch.int8))


def test_views_written_out() -> None:
    x = real(4, 6)
    turned = x.reshape(2, 2, 6).permute(2, 0, 1)
    check("ConfusionTranspose", {"out": turned}, x=x, perm=[2, 0, 1], shape=[2, 2, 6])
    options = {"perm": [1, 0], "shape": [3, 8], "transpose_first": True}
    check("ConfusionTranspose", {"out": x.permute(1, 0).reshape(3, 8)}, x=x, **options)
    options = {"begin": [1, 2], "end": [3, 4], "strides": [1, 2], "begin_mask": 1, "end_mask": 2}
    check("StridedSlice", {"out": x[:3, 2::2]}, x=x, **options)
    repeats, grad = torch.tensor([2, 0, 3]), real(2, 5)
    expected = torch.stack([grad[:, :2].sum(1), torch.zeros(2), grad[:, 2:].sum(1)], 1)
    check("RepeatInterleaveGrad", {"out": expected}, grad=grad, repeats=repeats, dim=1)
    indices, values = whole(6, 2, high=2).to(torch.int32), real(6, 3)
    unique, places = indices.unique(dim=0, return_inverse=True)
    sums = torch.zeros(len(unique), 3).index_add(0, places, values)
    expected = {"new_indices": unique, "new_values": sums}
    given = {"unique": torch.arange(len(unique)), "places": places.int(), "indices": indices}
    check("CoalesceSparse", expected, values=values, **given)


def test_logits_filtered() -> None:
    logits = real(4, 9)
    k, p = torch.tensor([3, 9, 1, 5], dtype=torch.int32), torch.tensor([0.9, 0.5, 0.1, 1.0])
    expected = torch.full((4, 9), -torch.inf)
    for row in range(4):
        order = logits[row].argsort(descending=True)[: k[row]]
        probabilities = torch.softmax(logits[row, order].double(), 0)
        before = probabilities.cumsum(0) - probabilities  # sum of the larger ones
        kept = order[(before < p[row]) | (torch.arange(len(order)) == 0)]
        expected[row, kept] = logits[row, kept]
    check("ApplyTopKTopP", {"out": expected}, logits=logits, k=k, p=p)


@pytest.mark.parametrize("mixed", [False, True])
def test_hyper_connections(mixed: bool) -> None:
    x, res, out, post = (leaf(*s) for s in ((3, 4, 6), (3, 4, 4), (3, 6), (3, 4)))
    y = post[..., None] * out[:, None]
    y = y + (torch.einsum("bij,bid->bjd", res, x) if mixed else x)
    given = {"x": x, "h_out": out, "h_post": post} | ({"h_res": res} if mixed else {})
    check("MhcPost", {"out": y}, **given)
    dy = real(3, 4, 6)
    expected = gradients(y, dy, **{f"d{name}": part for name, part in given.items()})
    check("MhcPostBackward", expected, dy=dy, **given)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_quantised_with_the_largest_magnitude(dtype: torch.dtype) -> None:
    x, scale = real(3, 8), torch.tensor([0.3])
    y, amax = torch.zeros(3, 8, dtype=dtype), torch.zeros(1)
    opapi.named("QuantMax", x=x, scale=scale, round_mode="rint", y=y, amax=amax)
    assert torch.equal(y.float(), (x / scale).to(dtype).float()) and amax == x.abs().max()


def test_dropout_and_its_mask_at_once() -> None:
    x, mask, out = real(30, 30) + 5, torch.zeros(128, dtype=torch.uint8), torch.zeros(30, 30)
    opapi.named("DropoutV3", x=x, p=0.25, seed=7, offset=1, out=out, mask=mask)
    kept = torch.stack([(mask >> bit) & 1 for bit in range(8)], 1).flatten()[:900].reshape(30, 30).bool()
    torch.testing.assert_close(out, torch.where(kept, x / 0.75, 0))
    assert 0.7 < kept.float().mean() < 0.8


@pytest.mark.parametrize("name", ["MhcPre", "MhcPreV2"])
@pytest.mark.parametrize("weighted", [False, True])
def test_mappings_before_a_layer(name: str, weighted: bool) -> None:
    x, phi, alpha, bias, gamma = real(3, 2, 5), real(8, 10), real(3), real(8), real(2, 5)
    flat = x.double().flatten(1)
    inverse = (flat.square().mean(-1, keepdim=True) + 1e-3).rsqrt()
    mix = (flat * gamma.flatten() if weighted else flat) @ phi.double().T
    weight = mix * inverse
    pre = torch.sigmoid(weight[:, :2] * alpha[0] + bias[:2]) + 1e-2
    expected = {
        "h_in": (pre[..., None] * x).sum(1),
        "h_post": 2 * torch.sigmoid(weight[:, 2:4] * alpha[1] + bias[2:4]),
        "h_res": (weight[:, 4:] * alpha[2] + bias[4:]).unflatten(-1, (2, 2)),
        "inv_rms": inverse[:, 0],
        "h_mix": mix,
        "h_pre": pre,
    }
    given = {"x": x, "phi": phi, "alpha": alpha, "bias": bias, "gamma": gamma if weighted else None}
    check(name, expected, **given, norm_eps=1e-3, hc_eps=1e-2)


@pytest.mark.parametrize("apart", [False, True])
def test_softmax_with_a_bias_of_positions(apart: bool) -> None:
    x, mask, bias = real(2, 3, 4, 5, 5), real(3, 5, 5), real(4, 5, 5)
    y = torch.softmax(x.double() * 0.7 + mask[:, None] + bias, -1)
    if apart:
        x, y = x.flatten(0, 1), y.flatten(0, 1)
    check("MaskedSoftmaxWithRelPosBias", {"out": y}, x=x, atten_mask=mask, relative_pos_bias=bias, scale=0.7)


def test_targets_of_ctc_loss_are_classes() -> None:
    lengths = {"input_lengths_list": [3], "target_lengths_list": [2]}
    outputs = {"neg_log_likelihood": torch.zeros(1), "log_alpha": torch.zeros(1, 3, 5)}
    for targets in (torch.tensor([[1, 5]]), torch.tensor([-1, 2])):
        with pytest.raises(ValueError, match=r"targets has a class outside of \[0, 5\)"):
            named("CtcLoss", log_probs=real(3, 1, 5), targets=targets, **lengths, **outputs)
    padded = torch.tensor([[1, 2, 99]])
    named("CtcLoss", log_probs=real(3, 1, 5), targets=padded, **lengths, **outputs)
