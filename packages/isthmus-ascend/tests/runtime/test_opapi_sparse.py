"""Selected attention, compression into a cache, gated delta rules and Sinkhorn's division, against loops."""

from typing import Any

import pytest
import torch

from tests.runtime import opapi
from tests.runtime.opapi import check, gradients
from tests.runtime.tensors import leaf, positive, real
from tests.runtime.test_opapi_errors import refused


def selected(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, index: torch.Tensor, ends: Any, size: int
) -> Any:
    """Return the attention of TND tensors to the selected blocks, the largest scores and the sums."""
    out, most, sums = [], [], []
    sequence = first = 0
    for t in range(len(q)):
        if t == ends[0][sequence]:
            first, sequence = ends[1][sequence], sequence + 1
        for head in range(q.shape[1]):
            of_keys = head // (q.shape[1] // k.shape[1])
            places = torch.cat([torch.arange(b * size, (b + 1) * size) for b in index[t, of_keys].tolist()])
            places = places[places < ends[1][sequence] - first] + first
            scores = k[places, of_keys] @ q[t, head] * 0.5
            out.append(torch.softmax(scores, 0) @ v[places, of_keys])
            most.append(scores.max())
            sums.append((scores - scores.max()).exp().sum())
    shape = q.shape[:2]
    return (torch.stack(out).unflatten(0, shape), torch.stack(most).unflatten(0, shape),
            torch.stack(sums).unflatten(0, shape))  # fmt: skip


def test_selected_attention_and_gradients() -> None:
    q, k, v = (leaf(*shape) for shape in ((5, 4, 6), (22, 2, 6), (22, 2, 3)))
    ends = ([2, 5], [12, 22])
    index = torch.stack([torch.stack([torch.randperm(3)[:2] for _ in range(2)]) for _ in range(5)]).int()
    out, most, sums = selected(q, k, v, index, ends, 4)
    given = {
        "query": q, "key": k, "value": v,
        "topk_indices": index, "actual_seq_qlen": ends[0], "actual_seq_kvlen": ends[1], "scale": 0.5,
        "head_num": 4, "layout": "TND", "sparse_mode": 2, "block_size": 4, "block_count": 2,
    }  # fmt: skip
    eight = {"softmax_max": most[..., None].repeat(1, 1, 8), "softmax_sum": sums[..., None].repeat(1, 1, 8)}
    check("NsaSelectedAttention", {"out": out, **eight}, **given)
    dy = real(5, 4, 3)
    expected = gradients(out, dy, dquery=q, dkey=k, dvalue=v)
    check("NsaSelectedAttentionGrad", expected, **given, grad=dy, attention_out=out, **eight)


def test_selected_attention_of_one_query_to_pages() -> None:
    q, key, value, lengths = real(2, 4, 6), real(5, 8, 2, 6), real(5, 8, 2, 3), [15, 9]
    table = torch.tensor([[3, 1], [4, 0]], dtype=torch.int32)
    index = torch.tensor([[[3, 0, 1], [2, 1, -1]], [[2, -1, -1], [0, 2, -1]]], dtype=torch.int32)
    out = torch.zeros(2, 4, 3).double()
    for b in range(2):
        for head in range(4):
            blocks = [i for i in index[b, head // 2].tolist() if i >= 0]
            places = [p for i in blocks for p in range(i * 4, i * 4 + 4) if p < lengths[b]]
            rows = [(int(table[b, p // 8]), p % 8, head // 2) for p in places]
            scores = torch.stack([key[at].double() @ q[b, head].double() * 0.5 for at in rows])
            out[b, head] = torch.softmax(scores, 0) @ torch.stack([value[at].double() for at in rows])
    sizes = {"head_num": 4, "kv_head_num": 2, "block_size": 4, "block_count": 3, "page_block_size": 8}
    given = {"topk_indices": index, "block_table": table, "actual_seq_kvlen": lengths, "scale": 0.5, **sizes}
    check("NsaSelectedAttentionInfer", {"out": out}, query=q, key=key, value=value, layout="TND", **given)
    check("NsaSelectedAttentionInfer", {"out": out.view(2, 1, 12)}, query=q.reshape(2, 1, 24),
          key=key.flatten(2), value=value.flatten(2), layout="BSH", **given)  # fmt: skip


def test_gradients_of_an_index() -> None:
    q, k, w = (leaf(*shape) for shape in ((2, 3, 4, 5), (2, 6, 1, 5), (2, 3, 4)))
    index = torch.stack([torch.randperm(6)[:4] for _ in range(6)]).view(2, 3, 4)
    scores = ((torch.einsum("bsnd,btod->bsnt", q, k)).relu() * w[..., None]).sum(2)
    dy = real(2, 3, 4)
    dy[0, 1, 2] = 0  # gradient of the absent one below
    expected = gradients(scores.gather(-1, index), dy, dquery=q, dkey=k, dweights=w)
    index[0, 1, 2] = -1
    dy[0, 1, 2] = 7
    given = {"query": q, "key": k, "weights": w, "sparse_indices": index.int(), "layout": "BSND"}
    check("LightningIndexerGrad", expected, **given, dy=dy)


def test_windows_compressed_into_a_cache() -> None:
    x, weight, cache = real(5, 8, 2, 3), real(6, 2), real(4, 2, 3)
    table = torch.tensor([[3, 1], [0, 4], [2, 0], [1, 2]], dtype=torch.int32)
    lengths, slots = [10, 6, 9, 16], torch.tensor([2, 0, 1, 3], dtype=torch.int32)
    expected = cache.clone()
    for i, length in enumerate(lengths):
        if (length - 6) % 2 == 0:
            rows = [
                x[table[i, p // 8], p % 8] * weight[p - length + 6, :, None]
                for p in range(length - 6, length)
            ]
            expected[slots[i]] = torch.stack(rows).sum(0)
    check("NsaCompressWithCache", {"cache": expected}, x=x, weight=weight, slot_mapping=slots, cache=cache,
          actual_seq_len=lengths, block_table=table, layout="TND", block_size=6, stride=2, lengths_type=1,
          page_block_size=8)  # fmt: skip


def delta_rule(q: Any, k: Any, v: Any, s: Any, alpha: Any, beta: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the answers of one head, and the states after each token."""
    out, states = [], []
    for t in range(len(q)):
        s = s * alpha[t]
        s = s + beta[t] * torch.outer(v[t] - s @ k[t], k[t])
        out.append(s @ q[t] * 0.5)
        states.append(s)
    return torch.stack(out), torch.stack(states)


@pytest.mark.parametrize("full", [False, True])
def test_gated_delta_rule(full: bool) -> None:
    lengths, tokens = [2, 3], 5
    q, k, v = real(tokens, 2, 4), real(tokens, 2, 4), real(tokens, 4, 3)
    state, start = real(7, 4, 3, 4), real(2, 4, 3, 4)
    beta, g = (positive(tokens, 4), -positive(tokens, 4)) if full else (None, None)
    gk = -positive(tokens, 4, 4) if full else None
    places, accepted = torch.tensor([6, 2, 0, 3, 5]), torch.tensor([2, 3]) if full else None
    ones = torch.ones(tokens, 4)
    decay = torch.zeros(tokens, 4) if g is None else g
    by_key = torch.zeros(tokens, 4, 4) if gk is None else gk
    expected, out, chunk, last = state.double(), [], [], []
    for i, begin in enumerate((0, 2)):
        part = slice(begin, begin + lengths[i])
        first = places[begin + (0 if accepted is None else int(accepted[i]) - 1)]
        rows: list[Any] = []
        chunks: list[Any] = []
        for head in range(4):
            given = [t[part].double() for t in (q[:, head // 2], k[:, head // 2], v[:, head])]
            b = (ones if beta is None else beta)[part, head].double()
            rows.append(delta_rule(*given, state[first, head].double(),
                                   (decay[part, head, None] + by_key[part, head]).double().exp(), b))  # fmt: skip
            chunks.append(
                delta_rule(*given, start[i, head].double(), decay[part, head, None].double().exp(), b)
            )
        out.append(torch.stack([row[0] for row in rows], 1))
        expected[places[part]] = torch.stack([row[1] for row in rows], 1)
        chunk.append(torch.stack([row[0] for row in chunks], 1))
        last.append(torch.stack([row[1][-1] for row in chunks]))
    given = {"query": q, "key": k, "value": v, "beta": beta, "g": g, "scale": 0.5,
             "actual_seq_lengths": torch.tensor(lengths, dtype=torch.int32)}  # fmt: skip
    given_too = {"gk": gk, "state": state, "ssm_state_indices": places.int(), "num_accepted_tokens": accepted}
    check("RecurrentGatedDeltaRule", {"out": torch.cat(out), "state": expected}, **given, **given_too)
    results = {"out": torch.cat(chunk), "final_state": torch.stack(last)}
    check("ChunkGatedDeltaRule", results, **given, initial_state=start)


@pytest.mark.parametrize("layout", ["BSND", "TND"])
def test_largest_scores_of_an_index_and_sums(layout: str) -> None:
    q, k, w = real(2, 3, 4, 5), real(2, 6, 1, 5), real(2, 3, 4)
    most, sums = torch.zeros(2, 3).double(), torch.zeros(2, 3).double()
    for b in range(2):
        for i in range(3):
            scores = [sum(w[b, i, n].double() * (q[b, i, n] @ k[b, j, 0]).clamp(min=0) for n in range(4))
                      for j in range(6 - 3 + i + 1)]  # fmt: skip
            most[b, i] = max(scores)
            sums[b, i] = sum((score - most[b, i]).exp() for score in scores)
    given = {"query": q, "key": k, "weights": w}
    if layout == "TND":
        given = {name: value.flatten(0, 1) for name, value in given.items()}
    expected = {"softmax_max": most[:, None], "softmax_sum": sums[:, None]}
    check("DenseLightningIndexerSoftmaxLse", expected, **given, layout=layout, sparse_mode=3,
          actual_seq_qlen=[3, 6], actual_seq_klen=[6, 12])  # fmt: skip


@pytest.mark.parametrize("count", [1, 4])
def test_rows_and_columns_divided_in_turn(count: int) -> None:
    x = real(2, 3, 4, 4)
    y = torch.softmax(x.double(), -1) + 1e-3
    y = y / (y.sum(-2, keepdim=True) + 1e-3)
    for _ in range(count - 1):
        y = y / (y.sum(-1, keepdim=True) + 1e-3)
        y = y / (y.sum(-2, keepdim=True) + 1e-3)
    check("MhcSinkhorn", {"out": y}, x=x, eps=1e-3, num_iters=count)


def test_refused() -> None:
    x = torch.zeros(2, 3, 4)
    assert "x has shape [2, 3, 4], expected square" in refused(
        "MhcSinkhorn", x, 1e-6, 3, x.clone(), None, None
    )
    x = torch.zeros(3, 3)
    message = refused("MhcSinkhorn", x, 1e-6, 3, x.clone(), torch.zeros(9), None)
    assert "aclnnMhcSinkhorn" in message and "norm_out is not supported" in message
    q, index = torch.zeros(5, 4, 6), torch.zeros(5, 2, 1, dtype=torch.int32)
    opapi.start()
    message = refused("NsaSelectedAttention", q, torch.zeros(8, 2, 6), torch.zeros(8, 2, 6), index, None, [4], [8],
                      1.0, 4, "TND", 2, 4, 1, None, None, q.clone())  # fmt: skip
    assert "end at other positions than query and key" in message
