"""Attention families against attention written out in float64, and its derivatives."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.runtime import opapi
from tests.runtime.opapi import check
from tests.runtime.tensors import flags, real


def equal(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected.to(actual.dtype), rtol=tolerance, atol=tolerance)


def heads(x: torch.Tensor, layout: str) -> torch.Tensor:
    """Return [batch, heads, sequence, size] in a layout."""
    if layout == "BNSD":
        return x
    x = x.transpose(1, 2)
    return x if layout == "BSND" else x.flatten(2) if layout == "BSH" else x.flatten(2).transpose(0, 1)


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
@pytest.mark.parametrize("sparse", [0, 1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_flash_attention(layout: str, sparse: int, groups: int) -> None:
    query, key, value = (real(2, n, 5, 8).requires_grad_() for n in (4, 4 // groups, 4 // groups))
    mask = flags(5, 5) & ~torch.eye(5, dtype=torch.bool)
    allowed = torch.ones(5, 5, dtype=torch.bool).tril() if sparse >= 2 else ~mask
    expected = F.scaled_dot_product_attention(
        query.double(), key.double(), value.double(), allowed, scale=0.4, enable_gqa=True
    )
    dy = real(2, 4, 5, 8)
    inputs = [heads(x.detach(), layout) for x in (query, key, value)]
    out, largest, total = torch.zeros(inputs[0].shape), torch.zeros(2, 4, 5, 8), torch.zeros(2, 4, 5, 8)
    fixed = (0.4, 1.0, 65536, 65536, 4, layout, 0, sparse)
    opapi.call(
        "FlashAttentionScore", *inputs, None, None, None, mask, None, *fixed, largest, total, None, out
    )
    equal(out, heads(expected.detach(), layout))
    scores = (query @ key.repeat_interleave(groups, 1).mT * 0.4).masked_fill(~allowed, -torch.inf)
    equal(largest[..., 0] + total[..., 0].log(), scores.logsumexp(-1).detach())
    grads = [torch.zeros(x.shape) for x in inputs]
    saved = (largest, total, None, out)
    opapi.call(
        "FlashAttentionScoreGrad",
        *inputs,
        heads(dy, layout),
        None,
        None,
        None,
        mask,
        *saved,
        None,
        *fixed,
        *grads,
        None,
    )
    for actual, wanted in zip(
        grads, torch.autograd.grad(expected, (query, key, value), dy.double()), strict=True
    ):
        equal(actual, heads(wanted, layout), 1e-4)


@pytest.mark.parametrize("sparse", [1, 2])
def test_flash_attention_with_dropout(sparse: int) -> None:
    query, key, value = (real(2, n, 5, 8).requires_grad_() for n in (4, 2, 2))
    mask = flags(5, 5) & ~torch.eye(5, dtype=torch.bool)
    allowed = torch.ones(5, 5, dtype=torch.bool).tril() if sparse == 2 else ~mask
    bits = torch.zeros(32, dtype=torch.uint8)
    opapi.call("DropoutGenMaskV2", [200], 0.25, 3, 1, torch.float32, bits)
    kept = torch.stack([(bits >> bit) & 1 for bit in range(8)], 1).flatten()[:200].reshape(2, 4, 5, 5)
    scores = (query @ key.repeat_interleave(2, 1).mT * 0.4).masked_fill(~allowed, -torch.inf)
    expected = (scores.softmax(-1) * kept / 0.75) @ value.repeat_interleave(2, 1)
    inputs, dy = [x.detach() for x in (query, key, value)], real(2, 4, 5, 8)
    out, largest, total = torch.zeros(2, 4, 5, 8), torch.zeros(2, 4, 5, 8), torch.zeros(2, 4, 5, 8)
    fixed = (0.4, 0.75, 65536, 65536, 4, "BNSD", 0, sparse)
    opapi.call(
        "FlashAttentionScore", *inputs, None, bits, None, mask, None, *fixed, largest, total, None, out
    )
    equal(out, expected.detach())
    grads = [torch.zeros(x.shape) for x in inputs]
    saved = (largest, total, None, out)
    opapi.call(
        "FlashAttentionScoreGrad", *inputs, dy, None, bits, None, mask, *saved, None, *fixed, *grads, None
    )
    for actual, wanted in zip(grads, torch.autograd.grad(expected, (query, key, value), dy), strict=True):
        equal(actual, wanted)


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, **options: Any
) -> Any:
    """Return attention of [heads, positions, size], and the logarithms of the sums; `hidden` is masked out."""
    groups = query.shape[0] // key.shape[0]
    key, value = key.repeat_interleave(groups, 0), value.repeat_interleave(groups, 0)
    scores = query @ key.mT * scale + options.get("bias", 0)
    if (hidden := options.get("hidden")) is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    if (sink := options.get("sink")) is not None:
        scores = torch.cat([scores, sink.reshape(-1, 1, 1).expand(*scores.shape[:-1], 1)], -1)
    sums, kept = scores.logsumexp(-1), scores.softmax(-1)[..., : key.shape[1]]
    return kept.nan_to_num(0) @ value, sums


def hidden(mode: int, queries: int, keys: int, prefix: int = 0) -> torch.Tensor:
    """Return what a sparse mode hides, with 1 token before and 2 after for a band."""
    i, j = torch.arange(queries)[:, None], torch.arange(keys)
    ahead = j - i - (keys - queries if mode >= 3 else 0)
    if mode == 4:
        return (ahead < -1) | (ahead > 2)
    return (ahead > 0) & (j >= prefix)


LENGTHS = ([2, 5, 9], [3, 9, 14])  # ends of the entries of a packed batch
STRETCHES = [((a, b), (c, d)) for a, b, c, d in zip([0, 2, 5], [2, 5, 9], [0, 3, 9], [3, 9, 14], strict=True)]
FORWARD = {"scale": 0.4, "keep_prob": 1.0, "pre_tokens": 1, "next_tokens": 2, "head_num": 4}


def packed(mode: int, tensors: list[torch.Tensor], sink: torch.Tensor | None = None) -> Any:
    """Return attention over the entries of a packed batch of [positions, heads, size], and statistics."""
    outs, peaks, sums = [], [], []
    for queries, keys in STRETCHES:
        q, k, v = (
            x[slice(*span)].transpose(0, 1) for x, span in zip(tensors, (queries, keys, keys), strict=True)
        )
        options = {"hidden": hidden(mode, q.shape[1], k.shape[1])} if mode else {}
        out, total = attention(q, k, v, 0.4, sink=sink, **options)
        outs.append(out.transpose(0, 1))
        scores = q @ k.repeat_interleave(2, 0).mT * 0.4
        seen = scores.masked_fill(options["hidden"], -torch.inf) if mode else scores
        peaks.append(seen.amax(-1).nan_to_num(neginf=0).T)
        sums.append((total.T - peaks[-1]).exp())
    statistics = {"softmax_max": torch.cat(peaks), "softmax_sum": torch.cat(sums)}
    return torch.cat(outs), {name: x[..., None].expand(9, 4, 8).detach() for name, x in statistics.items()}


VARLEN = {
    "FlashAttentionVarLenScore": "FlashAttentionUnpaddingScoreGrad",
    "FlashAttentionVarLenScoreV2": "FlashAttentionUnpaddingScoreGradV2",
    "FlashAttentionVarLenScoreV3": "FlashAttentionUnpaddingScoreGradV3",
    "FlashAttentionVarLenScoreV4": "FlashAttentionUnpaddingScoreGradV4",
    "FlashAttentionVarLenScoreV5": "FlashAttentionUnpaddingScoreGradV5",
    "FlashAttentionScoreV4": "FlashAttentionScoreGradV4",
}


@pytest.mark.parametrize("name", VARLEN)
@pytest.mark.parametrize("mode", [0, 2, 3, 4])
def test_attention_of_a_packed_batch(name: str, mode: int) -> None:
    roped, sunk = (
        name.endswith(("V3", "V5", "ScoreV4")) and "VarLenScoreV4" not in name,
        name.endswith(("V5", "ionScoreV4")),
    )
    query, key, value = (real(n, h, 6).double().requires_grad_() for n, h in ((9, 4), (14, 2), (14, 2)))
    ropes = [real(n, h, 2).double().requires_grad_() for n, h in ((9, 4), (14, 2))] if roped else []
    sink = real(4).double().requires_grad_() if sunk else None
    whole = (
        [torch.cat([x, r], -1) for x, r in zip((query, key), ropes, strict=True)] if roped else [query, key]
    )
    out, statistics = packed(mode, [*whole, value], sink)
    given = {"query": query, "key": key, "value": value} | dict(
        zip(("query_rope", "key_rope"), ropes, strict=False)
    )
    given |= {"sink": sink} if sunk else {}
    learned = list(given.values())
    inputs = {key: x.detach().float() for key, x in given.items()}
    options = FORWARD | {
        "input_layout": "TND",
        "sparse_mode": mode,
        "actual_seq_qlen": LENGTHS[0],
        "actual_seq_kvlen": LENGTHS[1],
    }
    options |= {"pse_type": 1} if "pse_type" in dict(map(reversed, opapi.ROWS[name].parameters)) else {}
    check(name, {"out": out, **statistics}, 1e-4, **inputs, **options)
    dy = real(9, 4, 6)
    grads = torch.autograd.grad(out, learned, dy.double())
    names = {
        "query": "dq",
        "key": "dk",
        "value": "dv",
        "query_rope": "dq_rope",
        "key_rope": "dk_rope",
        "sink": "dsink",
    }
    saved = {"attention_in": out} | statistics
    check(
        VARLEN[name],
        {names[key]: grad for key, grad in zip(given, grads, strict=True)},
        1e-4,
        dy=dy,
        **inputs,
        **{key: x.detach().float() for key, x in saved.items()},
        **options,
    )


@pytest.mark.parametrize("version", ["V2", "V3"])
@pytest.mark.parametrize("mode", [0, 4, 5])
@pytest.mark.parametrize("pse_type", [0, 1])
def test_attention_with_a_position_bias(version: str, mode: int, pse_type: int) -> None:
    forward = {"V2": "FlashAttentionScoreV2", "V3": "FlashAttentionScoreV3"}[version]
    backward = {"V2": "FlashAttentionScoreGradV2", "V3": "FlashAttentionScoreGradV3"}[version]
    query, key, value = (real(2, n, s, 8).double().requires_grad_() for n, s in ((4, 5), (2, 7), (2, 7)))
    pse = real(1, 4, 5, 7).double().requires_grad_()
    sink = real(4).double().requires_grad_() if version == "V3" else None
    mask = flags(5, 7)
    bias = pse * 0.4 if pse_type else pse
    parts = []
    for i in range(2):
        out_of_sight = mask | hidden(4, 7, 7)[:5] if mode == 0 else hidden(mode, 5, 7, 2 + i)
        parts.append(attention(query[i], key[i], value[i], 0.4, hidden=out_of_sight, bias=bias[0], sink=sink))
    out, sums = (torch.stack(part) for part in zip(*parts, strict=True))
    given = {"query": query, "key": key, "value": value, "pse": pse} | (
        {"sink": sink} if sink is not None else {}
    )
    inputs = {name: x.detach().float() for name, x in given.items()} | {"atten_mask": mask}
    options = FORWARD | {"input_layout": "BNSD", "sparse_mode": mode, "prefix": [2, 3], "pse_type": pse_type}
    statistics = {
        "softmax_max": sums[..., None].expand(2, 4, 5, 8),
        "softmax_sum": torch.ones(2, 4, 5, 8, dtype=torch.float64),
    }
    check(forward, {"out": out, **statistics}, 1e-4, **inputs, **options)
    dy = real(2, 4, 5, 8)
    grads = torch.autograd.grad(out, list(given.values()), dy.double())
    names = ("dq", "dk", "dv", "dpse", "dsink")
    check(
        backward,
        dict(zip(names, grads, strict=False)),
        1e-4,
        dy=dy,
        **inputs,
        **options,
        **{key: x.detach().float() for key, x in (statistics | {"attention_in": out}).items()},
    )


INFER = [
    "FusedInferAttentionScoreV2",
    "FusedInferAttentionScoreV3",
    "FusedInferAttentionScoreV4",
    "FusedInferAttentionScoreV5",
]


@pytest.mark.parametrize("name", [*INFER, "PromptFlashAttentionV3"])
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "BNSD_BSND", "TND"])
@pytest.mark.parametrize("mode", [0, 3])
def test_attention_of_prompts(name: str, layout: str, mode: int) -> None:
    prompt = name == "PromptFlashAttentionV3"
    lengths, key_lengths = [3, 5], [4, 6]
    query, key, value = real(2, 4, 5, 8), real(2, 2, 6, 8), real(2, 2, 6, 8)
    mask = flags(5, 6) & ~torch.eye(5, 6, dtype=torch.bool)
    out, sums = torch.zeros(2, 4, 5, 8, dtype=torch.float64), torch.zeros(2, 4, 5, 1, dtype=torch.float64)
    for i, (n, k) in enumerate(zip(lengths, key_lengths, strict=True)):
        out_of_sight = mask[:n, :k] if mode == 0 else hidden(3, n, k)
        part = attention(
            query[i, :, :n].double(),
            key[i, :, :k].double(),
            value[i, :, :k].double(),
            0.4,
            hidden=out_of_sight,
        )
        out[i, :, :n], sums[i, :, :n, 0] = part
    options = {"actual_seq_lengths": lengths, "actual_seq_lengths_kv": key_lengths}

    def placed(x: torch.Tensor, kind: str, ends: list[int]) -> torch.Tensor:
        if kind == "TND":
            return torch.cat([x[i, :, :n].transpose(0, 1) for i, n in enumerate(ends)])
        return heads(x, kind)

    if layout == "TND":
        options = {"actual_seq_lengths": [3, 8], "actual_seq_lengths_kv": [4, 10]}
    inner, outer = layout.split("_", maxsplit=1)[0], layout.rsplit("_", maxsplit=1)[-1]
    inputs = {"query": placed(query, inner, lengths)}
    for part, x in (("key", key), ("value", value)):
        inputs[part] = placed(x, inner, key_lengths) if prompt else [placed(x, inner, key_lengths)]
    expected = {"out": placed(out, outer, lengths)}
    if not prompt:
        expected["softmax_lse"] = placed(sums, "TND", lengths) if layout == "TND" else sums
        options["softmax_lse_flag"] = True
    check(
        name,
        expected,
        1e-4,
        **inputs,
        **options,
        atten_mask=mask,
        num_heads=4,
        num_key_value_heads=2,
        scale=0.4,
        pre_tokens=1000,
        next_tokens=1000,
        sparse_mode=mode,
        input_layout=layout,
    )


@pytest.mark.parametrize("name", ["IncreFlashAttentionV4", "FusedInferAttentionScoreV3"])
@pytest.mark.parametrize("blocked", [False, True])
def test_attention_of_one_query_over_a_cache(name: str, blocked: bool) -> None:
    query, key, value = real(2, 4, 1, 8), real(2, 2, 6, 8), real(2, 2, 6, 8)
    lengths, table = [3, 6], torch.tensor([[4, 0, 2], [1, 3, 5]], dtype=torch.int32)
    out = torch.stack(
        [
            attention(query[i].double(), key[i, :, :n].double(), value[i, :, :n].double(), 0.4)[0]
            for i, n in enumerate(lengths)
        ]
    )
    inputs = [[key], [value]]
    if blocked:  # blocks of 2 positions
        inputs = []
        for x in (key, value):
            blocks = torch.zeros(6, 2, 2, 8)
            for i in range(2):
                blocks[table[i].long()] = x[i].unflatten(1, (3, 2)).transpose(0, 1)
            inputs.append([blocks])
    options = {"block_table": table, "block_size": 2} if blocked else {}
    options["actual_seq_lengths" if name.startswith("Incre") else "actual_seq_lengths_kv"] = lengths
    check(
        name,
        {"out": out},
        1e-4,
        query=query,
        key=inputs[0],
        value=inputs[1],
        num_heads=4,
        num_key_value_heads=2,
        scale=0.4,
        input_layout="BNSD",
        **options,
    )


def test_arguments_that_attention_does_not_read_are_refused() -> None:
    one = real(1, 1, 2, 8)
    with pytest.raises(ValueError, match="antiquant_scale is not supported"):
        opapi.named(
            "FusedInferAttentionScoreV2",
            query=one,
            key=[one],
            value=[one],
            antiquant_scale=real(8),
            num_heads=1,
            input_layout="BNSD",
            out=torch.zeros(1, 1, 2, 8),
        )


@pytest.mark.parametrize("layout", ["SBH", "TND"])
def test_attention_over_parts_of_the_keys_joined(layout: str) -> None:
    query, key, value = (real(4, n, 8).double() for n in (5, 7, 7))
    (first, before), (second, now), (whole, sums) = (
        attention(query, key[:, part], value[:, part], 0.4) for part in (slice(3), slice(3, 7), slice(7))
    )

    def columns(x: torch.Tensor) -> torch.Tensor:
        x = x if layout == "SBH" else x.T
        return (
            (x[None] if layout == "SBH" else x)[..., None]
            .expand(*(1, 4, 5) if layout == "SBH" else (5, 4), 8)
            .float()
        )

    def placed(x: torch.Tensor) -> torch.Tensor:
        return heads(x[None], "SBH") if layout == "SBH" else x.transpose(0, 1)

    ones = torch.ones_like(columns(sums))
    largest = torch.maximum(columns(before), columns(now))
    expected = {
        "attn_out": placed(whole),
        "softmax_max": largest,
        "softmax_sum": (columns(sums) - largest).exp(),
    }
    check(
        "RingAttentionUpdateV2",
        expected,
        1e-4,
        prev_out=placed(first).float(),
        prev_max=columns(before),
        prev_sum=ones,
        cur_out=placed(second).float(),
        cur_max=columns(now),
        cur_sum=ones,
        input_layout=layout,
    )
    check(
        "AttentionUpdate",
        {"out": whole.flatten(0, 1), "lse_out": sums.flatten()},
        1e-4,
        update_type=1,
        lse=[before.flatten().float(), now.flatten().float()],
        local_out=[first.flatten(0, 1).float(), second.flatten(0, 1).float()],
    )
