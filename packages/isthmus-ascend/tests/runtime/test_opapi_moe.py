"""Mixture of experts: gates, routing and permutation of tokens against loops and derivatives."""

import itertools
import struct
from typing import Any

import pytest
import torch

from tests.runtime.opapi import check, gradients
from tests.runtime.tensors import leaf, positive, quantised, real, whole


def gate(
    x: torch.Tensor, k: int, sigmoid: bool, bias: torch.Tensor | None, groups: int, kept: int, two: bool
) -> Any:
    normed = torch.sigmoid(x) if sigmoid else torch.softmax(x, -1)
    chosen = normed if bias is None else normed + bias
    parts = chosen.detach().clone().unflatten(-1, (groups, -1))
    for row in range(len(x)):
        best = parts[row].sort(-1, descending=True).values[:, : 2 if two else 1].sum(-1)
        worst = best.argsort(descending=True)[kept:]
        parts[row, worst] = -torch.inf
    experts = parts.flatten(-2).argsort(-1, descending=True)[:, :k]
    y = normed.gather(-1, experts)
    return normed, experts, y / (y.sum(-1, keepdim=True) + 1e-3) if sigmoid else y


@pytest.mark.parametrize("name", ["MoeGatingTopK", "MoeGatingTopKV2"])
@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("groups", [1, 4])
def test_gate_by_groups(name: str, sigmoid: bool, groups: int) -> None:
    x, bias, kept = (real(5, 8), real(8), 2) if groups > 1 else (real(5, 8), None, 1)
    two = sigmoid and groups > 1
    wide = None if bias is None else bias.double()
    normed, experts, y = gate(x.double(), 3, sigmoid, wide, groups, kept, two)
    options = {"k": 3, "k_group": kept, "group_count": groups, "group_select_mode": int(two)}
    options |= {"norm_type": int(sigmoid), "routed_scaling_factor": 1.5, "eps": 1e-3, "x": x, "bias": bias}
    expected = {"y": y * 1.5, "expert_idx": experts.int()}
    check(name, expected | {"out": normed}, **options, out_flag=True)
    check(name, expected, **options, out_flag=False, out=torch.zeros(5, 8))


@pytest.mark.parametrize("sigmoid", [False, True])
def test_gradient_of_the_gate(sigmoid: bool) -> None:
    x, dy = leaf(5, 8), real(5, 3)
    normed, experts, y = gate(x, 3, sigmoid, None, 1, 1, False)
    given = {"x_norm": normed, "grad_y": dy, "expert_idx": experts.int(), "norm_type": int(sigmoid)}
    expected = gradients(y * 1.5, dy, dx=x)
    check("MoeGatingTopKBackward", expected, **given, routed_scaling_factor=1.5, eps=1e-3)


def test_gate_by_softmax() -> None:
    x, finished = real(4, 6), torch.tensor([False, True, False, False])
    y, experts = torch.softmax(x.double(), -1).topk(2)
    named = torch.where(finished[:, None], 6, experts).int()
    rows = torch.arange(8).reshape(2, 4).T.int()
    expected, given = {"y": y, "expert_idx": named}, {"x": x, "finished": finished, "k": 2}
    check("MoeGatingTopKSoftmax", expected | {"row_idx": rows}, **given)
    expected["softmax_result"] = torch.softmax(x.double(), -1)
    check("MoeGatingTopKSoftmaxV2", expected, **given, softmax_flag=True)
    again = torch.softmax(x.double().topk(2).values, -1)
    check("MoeGatingTopKSoftmaxV2", {"y": again, "expert_idx": experts.int()}, x=x, k=2, renorm=1)


def test_tokens_of_each_expert_counted() -> None:
    experts, ends = (torch.tensor(x, dtype=torch.int32) for x in ([0, 0, 1, 3, 3, 3], [2, 3, 3, 6, 6]))
    check("MoeComputeExpertTokens", {"out": ends}, sorted_experts=experts, num_expert=5)


EXPERTS = torch.tensor([[2, 0], [1, 3], [0, 2], [2, 1]], dtype=torch.int32)
ORDER = EXPERTS.flatten().argsort(stable=True)  # (row, choice) by expert
PLACES = ORDER.argsort()


def test_rows_numbered_by_the_caller() -> None:
    x = real(4, 3)
    numbers = torch.arange(8).reshape(2, 4).T.contiguous().int()  # choice * rows + row
    source = numbers.flatten()[ORDER].long()
    place = torch.zeros(8, dtype=torch.int32)
    place[source] = torch.arange(8, dtype=torch.int32)
    expected = {
        "expanded_x": x[source % 4],
        "expanded_row_idx": place,
        "expanded_expert_idx": EXPERTS.flatten()[ORDER],
    }
    check("MoeInitRouting", expected, x=x, row_idx=numbers, expert_idx=EXPERTS, active_num=4)


@pytest.mark.parametrize("cumulative", [True, False])
def test_rows_by_expert(cumulative: bool) -> None:
    x, counts = real(4, 3), torch.tensor([2, 2, 3, 1], dtype=torch.int32)
    expected = {"expanded_x": x[ORDER // 2], "expanded_row_idx": PLACES.int()}
    counted = expected | {"counts": counts.cumsum(0).int() if cumulative else counts}
    given = {"x": x, "expert_idx": EXPERTS, "expert_num": 4}
    check("MoeInitRoutingV2", counted, **given, counts_kind=1 if cumulative else 2)
    given |= {"expanded_scale": torch.zeros(8), "quant_mode": -1, "active_expert_range": [0, 4]}
    counted["counts"] = counted["counts"].long()
    check("MoeInitRoutingV3", counted, **given, counts_flag=True, counts_type=0 if cumulative else 1)


def test_rows_up_to_a_capacity() -> None:
    x = real(4, 3)
    slots = torch.full((4, 2), -1)
    for expert in range(4):
        mine = [int(i) for i in ORDER if EXPERTS.flatten()[i] == expert][:2]
        slots[expert, : len(mine)] = torch.tensor(mine)
    flat = slots.flatten()
    expanded = torch.where(flat[:, None] >= 0, x[flat.clamp(min=0) // 2], 0)
    place = torch.full((8,), -1, dtype=torch.int32)
    place[flat[flat >= 0]] = (flat >= 0).nonzero().flatten().int()
    expected = {
        "expanded_x": expanded.reshape(4, 2, 3),
        "expanded_row_idx": place,
        "counts_before": torch.tensor([2, 2, 3, 1], dtype=torch.int32),
    }
    options = {"expert_num": 4, "expert_capacity": 2, "drop_pad_mode": 1, "before_capacity": True}
    check("MoeInitRoutingV2", expected, x=x, expert_idx=EXPERTS, **options)


def test_rows_of_some_experts_with_scales_and_pairs() -> None:
    x, scale = real(4, 3), positive(4)
    order = [int(i) for i in ORDER if 1 <= EXPERTS.flatten()[i] < 3]
    expanded, scales, place = torch.zeros(8, 3), torch.zeros(8), torch.full((8,), -1, dtype=torch.int32)
    for row, i in enumerate(order):
        expanded[row], scales[row], place[i] = x[i // 2], scale[i // 2], row
    pairs = torch.zeros(4, 2, dtype=torch.int64)
    pairs[:2] = torch.tensor([[1, 2], [2, 3]])
    given = {"x": x, "expert_idx": EXPERTS, "active_expert_range": [1, 3], "expert_num": 4, "quant_mode": -1}
    expected = {"expanded_x": expanded, "expanded_scale": scales, "expanded_row_idx": place, "counts": pairs}
    check("MoeInitRoutingV3", expected, **given, scale=scale, counts_flag=True, counts_type=2)
    outside = [i for i in range(8) if i not in order]
    expected = {"expanded_row_idx": torch.tensor([*order, *outside], dtype=torch.int32)}
    given |= {"expanded_x": torch.zeros(8, 3), "row_idx_type": 1}
    check("MoeInitRoutingV3", expected, **given, counts_flag=False, counts_type=2)


@pytest.mark.parametrize("name", ["MoeInitRoutingQuantV2", "MoeInitRoutingV3"])
@pytest.mark.parametrize("smooth", [False, True])
def test_rows_by_expert_quantised(name: str, smooth: bool) -> None:
    x, scale = real(4, 3), positive(4, 3)
    options = {"expert_num": 4} | ({"active_expert_range": [0, 4]} if name == "MoeInitRoutingV3" else {})
    value = x[ORDER // 2].double() * (scale[EXPERTS.flatten()[ORDER].long()] if smooth else 1)
    largest = value.abs().amax(-1, keepdim=True) / 127
    expected = {
        "expanded_x": quantised(value / largest),
        "expanded_scale": largest[:, 0],
        "expanded_row_idx": PLACES.int(),
    }
    check(name, expected, x=x, expert_idx=EXPERTS, scale=scale if smooth else None, quant_mode=1, **options)
    fixed, offset = torch.tensor([40.0]), torch.tensor([3.0])
    expected = {"expanded_x": quantised(x[ORDER // 2].double() * 40 + 3), "expanded_row_idx": PLACES.int()}
    check(name, expected, x=x, expert_idx=EXPERTS, scale=fixed, offset=offset, quant_mode=0, **options)


FINALIZE = ["MoeFinalizeRoutingV2", "MoeFinalizeRoutingV4"]


@pytest.mark.parametrize(
    ("name", "by_row"), [("MoeFinalizeRouting", False), *itertools.product(FINALIZE, (False, True))]
)
def test_outputs_of_experts_summed(name: str, by_row: bool) -> None:
    rows, skip1, skip2, bias, scales = real(8, 3), real(4, 3), real(4, 3), real(4, 3), positive(4, 2)
    places = PLACES.clone()
    places[3] = -1  # dropped
    out = skip1.double() + skip2
    for i in range(4):
        for k in range(2):
            place = places[i * 2 + k if by_row else k * 4 + i]
            out[i] += scales[i, k] * ((rows[place] if place >= 0 else 0) + bias[EXPERTS[i, k].long()])
    given = {"expanded_rows": rows, "skip1": skip1, "skip2": skip2, "bias": bias, "scales": scales}
    given |= {"expert_idx": EXPERTS, "row_idx": places.int()}
    check(name, {"out": out}, **given, **({"mode": 2 * by_row} if name in FINALIZE else {}))


def test_tokens_from_ranks_by_expert() -> None:
    counts = torch.tensor([[1, 2, 0], [2, 0, 3]])
    tokens, scales = real(8, 4), positive(8)
    index = torch.tensor([0, 3, 4, 1, 2, 5, 6, 7])
    expected = {"out": tokens[index], "token_idx": index.int(), "expert_counts": counts.sum(0)}
    given = {"tokens": tokens, "counts": counts, "counts_kind": 1}
    check("MoeReRouting", expected | {"out_scales": scales[index]}, scales=scales, **given)
    kept = torch.full((8,), 7.0)
    check("MoeReRouting", expected | {"out_scales": kept}, out_scales=kept, **given)


@pytest.mark.parametrize("mode", [0, 1])
def test_experts_that_serve_a_rank(mode: int) -> None:
    copies = torch.tensor([1, 3, 2, 4])
    table = torch.cat([copies[:, None], whole(4, 4, high=90)], 1).int()
    scales, threshold = positive(4, 2), torch.tensor([[0.3, 0.6]])
    active, ids = torch.tensor([True, True, True, False]), torch.zeros(4, 2, dtype=torch.int64)
    for i in range(4):
        for k in range(2):
            count, *servers = table[EXPERTS[i, k].long()].tolist()
            ids[i, k] = servers[i % count if mode else 5 // -(-8 // count)]
    mask = (scales >= threshold * scales.sum(-1, keepdim=True)) & active[:, None]
    given = {"expert_ids": EXPERTS, "eplb_table": table, "expert_scales": scales, "active_mask": active}
    options = {"pruning_threshold": threshold, "local_rank_id": 5, "world_size": 8, "balance_mode": mode}
    check("MoeUpdateExpert", {"out_ids": ids, "out_mask": mask}, **given, **options)


@pytest.mark.parametrize("kept", [8, 6])
def test_tokens_permuted_and_put_back(kept: int) -> None:
    tokens, probs = leaf(4, 3), positive(4, 2).double().requires_grad_()
    permuted = tokens[ORDER[:kept] // 2]
    given, index = {"tokens": tokens, "indices": EXPERTS, "num_out_tokens": kept}, PLACES.int()
    check("MoeTokenPermute", {"permuted_tokens": permuted, "sorted_indices": index}, **given)
    dy = real(kept, 3)
    expected = gradients(permuted, dy, grad_tokens=tokens)
    check("MoeTokenPermuteGrad", expected, grad_permuted_tokens=dy, sorted_indices=index, topk=2)
    rows = leaf(kept, 3)
    padded = torch.cat([rows, torch.zeros(8 - kept, 3)])
    out = (padded[PLACES].reshape(4, 2, 3) * probs[..., None]).sum(1)
    given = {"permuted_tokens": rows, "sorted_indices": index, "probs": probs}
    check("MoeTokenUnpermute", {"out": out}, **given)
    dy = real(4, 3)
    expected = gradients(out, dy, grad_permuted_tokens=rows, grad_probs=probs)
    check("MoeTokenUnpermuteGrad", expected, grad_out=dy, **given)


@pytest.mark.parametrize("padded", [False, True])
def test_tokens_permuted_and_put_back_by_a_map(padded: bool) -> None:
    routing = torch.zeros(4, 4, dtype=torch.bool).scatter_(1, EXPERTS.long(), True)
    tokens, probs = leaf(4, 3), positive(4, 4).double().requires_grad_()
    if padded:  # two rows for each expert
        chosen = routing.T.int().argsort(dim=-1, descending=True, stable=True)[:, :2]
        token, expert = chosen.flatten(), torch.arange(4).repeat_interleave(2)
        index = token.int()
    else:
        expert, token = routing.T.nonzero().T
        index = token.argsort(stable=True).int()
    permuted, weights = tokens[token], probs[token, expert]
    inputs = {"routing_map": routing.to(torch.int8), "drop_and_pad": padded}
    expected = {"permuted_tokens": permuted, "permuted_probs": weights, "sorted_indices": index}
    given = {"tokens": tokens, "probs": probs, "num_out_tokens": 8}
    check("MoeTokenPermuteWithRoutingMap", expected, **given, **inputs)
    dy, dp = real(8, 3), real(8)
    expected = gradients((permuted, weights), (dy, dp), grad_tokens=tokens, grad_probs=probs)
    given = {"grad_permuted_tokens": dy, "grad_permuted_probs": dp, "sorted_indices": index}
    check("MoeTokenPermuteWithRoutingMapGrad", expected, **given, experts=4, tokens=4, **inputs)
    rows = leaf(8, 3)
    out = torch.zeros(4, 3, dtype=torch.float64).index_add(0, token, rows * probs[token, expert][:, None])
    order = token.argsort(stable=True)
    factors = probs[token, expert] if padded else probs[token, expert][order]
    saved = {"out_index": order.int(), "permuted_token_id": token[order].int()}
    given = inputs | {"permuted_tokens": rows, "probs": probs}
    expected = {"out": out, "permute_probs": factors, **saved}
    check("MoeTokenUnpermuteWithRoutingMap", expected, sorted_indices=index, **given)
    dy = real(4, 3)
    expected = gradients(out, dy, grad_permuted_tokens=rows, grad_probs=probs)
    check("MoeTokenUnpermuteWithRoutingMapGrad", expected, grad_out=dy, **saved, **given)


def test_tokens_that_experts_send_to_an_attention_worker() -> None:
    """The last choice is the shared expert's, of weight 1; the context names the memory of the tokens."""
    tokens, scales = torch.randn(2, 4, 3, 5).half(), positive(4, 2)
    context = bytearray(1024)
    struct.pack_into("<3I", context, 4, 2, 4, 3)
    struct.pack_into("<2QI", context, 272, tokens.data_ptr(), tokens.nbytes, 1)
    weights = torch.cat([scales, torch.ones(4, 1)], 1).double()
    given: dict[str, Any] = {
        "schedule_context": torch.frombuffer(context, dtype=torch.int8),
        "expert_scales": scales,
        "layer_id": torch.tensor([6], dtype=torch.int32),
        "hidden_size": 5,
    }
    expected = {
        "y": (tokens[1].double() * weights[..., None]).sum(1).half(),
        "next_layer_id": torch.tensor([7], dtype=torch.int32),
    }
    check("AttentionWorkerCombine", expected, tolerance=2e-3, **given)
    with pytest.raises(ValueError, match="needSchedule is 1, expected 0"):
        check("AttentionWorkerCombine", expected, need_schedule=1, **given)
    struct.pack_into("<I", context, 288, 2)
    with pytest.raises(ValueError, match="the micro-batch is 2, of 2"):
        check("AttentionWorkerCombine", expected, **given)
