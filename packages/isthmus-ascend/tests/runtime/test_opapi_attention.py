"""Attention families against attention written out in float64, and its derivatives."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.runtime import opapi
from tests.runtime.opapi import check, gradients
from tests.runtime.tensors import flags, leaf, real


def equal(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected.to(actual.dtype), rtol=tolerance, atol=tolerance)


def heads(x: torch.Tensor, layout: str) -> torch.Tensor:
    """Return [batch, heads, sequence, size] in a layout."""
    if layout == "BNSD":
        return x
    x = x.transpose(1, 2)
    return x if layout == "BSND" else x.flatten(2) if layout == "BSH" else x.flatten(2).transpose(0, 1)


def flash(
    inputs: list[torch.Tensor], dy: torch.Tensor, mask: torch.Tensor, bits: torch.Tensor | None, *fixed: Any
) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """Return what FlashAttentionScore writes: the attention, its statistics, and the gradients."""
    out, statistics = torch.zeros(inputs[0].shape), [torch.zeros(2, 4, 5, 8) for _ in range(2)]
    masks = (None, bits, None, mask)
    opapi.call("FlashAttentionScore", *inputs, *masks, None, *fixed, *statistics, None, out)
    grads = [torch.zeros(x.shape) for x in inputs]
    saved = (*statistics, None, out)
    opapi.call("FlashAttentionScoreGrad", *inputs, dy, *masks, *saved, None, *fixed, *grads, None)
    return out, statistics, grads


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
    fixed = (0.4, 1.0, 65536, 65536, 4, layout, 0, sparse)
    out, (largest, total), grads = flash(inputs, heads(dy, layout), mask, None, *fixed)
    equal(out, heads(expected.detach(), layout))
    scores = (query @ key.repeat_interleave(groups, 1).mT * 0.4).masked_fill(~allowed, -torch.inf)
    equal(largest[..., 0] + total[..., 0].log(), scores.logsumexp(-1).detach())
    wanted = torch.autograd.grad(expected, (query, key, value), dy.double())
    for actual, grad in zip(grads, wanted, strict=True):
        equal(actual, heads(grad, layout), 1e-4)


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
    out, _, grads = flash(inputs, dy, mask, bits, 0.4, 0.75, 65536, 65536, 4, "BNSD", 0, sparse)
    equal(out, expected.detach())
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
GRADIENTS = {
    "query": "dq", "key": "dk", "value": "dv", "query_rope": "dq_rope", "key_rope": "dk_rope", "pse": "dpse",
    "sink": "dsink",
}  # fmt: skip
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
    roped = name.endswith(("V3", "V5", "ScoreV4")) and "VarLenScoreV4" not in name
    sunk = name.endswith(("V5", "ionScoreV4"))
    query, key, value = (leaf(n, h, 6) for n, h in ((9, 4), (14, 2), (14, 2)))
    ropes = [leaf(n, h, 2) for n, h in ((9, 4), (14, 2))] if roped else []
    sink = leaf(4) if sunk else None
    whole = (
        [torch.cat(parts, -1) for parts in zip((query, key), ropes, strict=True)] if roped else [query, key]
    )
    out, statistics = packed(mode, [*whole, value], sink)
    given = {"query": query, "key": key, "value": value}
    given |= dict(zip(("query_rope", "key_rope"), ropes, strict=False)) | ({"sink": sink} if sunk else {})
    options = FORWARD | {"input_layout": "TND", "sparse_mode": mode}
    options |= {"actual_seq_qlen": LENGTHS[0], "actual_seq_kvlen": LENGTHS[1]}
    options |= {"pse_type": 1} if "pse_type" in dict(map(reversed, opapi.ROWS[name].parameters)) else {}
    check(name, {"out": out, **statistics}, 1e-4, **given, **options)
    dy = real(9, 4, 6)
    expected = gradients(out, dy, **{GRADIENTS[name]: x for name, x in given.items()})
    check(VARLEN[name], expected, 1e-4, dy=dy, attention_in=out, **given, **statistics, **options)


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        ("FlashAttentionScoreV2", "FlashAttentionScoreGradV2"),
        ("FlashAttentionScoreV3", "FlashAttentionScoreGradV3"),
    ],
)
@pytest.mark.parametrize("mode", [0, 4, 5])
@pytest.mark.parametrize("pse_type", [0, 1])
def test_attention_with_a_position_bias(forward: str, backward: str, mode: int, pse_type: int) -> None:
    query, key, value = (leaf(2, n, s, 8) for n, s in ((4, 5), (2, 7), (2, 7)))
    pse = leaf(1, 4, 5, 7)
    sink, mask = leaf(4) if forward.endswith("V3") else None, flags(5, 7)
    bias = pse * 0.4 if pse_type else pse
    parts = []
    for i in range(2):
        out_of_sight = mask | hidden(4, 7, 7)[:5] if mode == 0 else hidden(mode, 5, 7, 2 + i)
        parts.append(attention(query[i], key[i], value[i], 0.4, hidden=out_of_sight, bias=bias[0], sink=sink))
    out, sums = (torch.stack(part) for part in zip(*parts, strict=True))
    given = {"query": query, "key": key, "value": value, "pse": pse}
    given |= {"sink": sink} if sink is not None else {}
    options = FORWARD | {"input_layout": "BNSD", "sparse_mode": mode, "prefix": [2, 3], "pse_type": pse_type}
    options["atten_mask"] = mask
    statistics = {"softmax_max": sums[..., None].expand(2, 4, 5, 8), "softmax_sum": torch.ones(2, 4, 5, 8)}
    check(forward, {"out": out, **statistics}, 1e-4, **given, **options)
    dy = real(2, 4, 5, 8)
    expected = gradients(out, dy, **{GRADIENTS[name]: x for name, x in given.items()})
    check(backward, expected, 1e-4, dy=dy, attention_in=out, **given, **statistics, **options)


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
        parts = (x[i, :, :count].double() for x, count in ((query, n), (key, k), (value, k)))
        out[i, :, :n], sums[i, :, :n, 0] = attention(*parts, 0.4, hidden=out_of_sight)
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
    options |= {"num_heads": 4, "num_key_value_heads": 2, "scale": 0.4, "pre_tokens": 1000}
    options |= {"atten_mask": mask, "next_tokens": 1000, "sparse_mode": mode, "input_layout": layout}
    check(name, expected, 1e-4, **inputs, **options)


@pytest.mark.parametrize("name", ["IncreFlashAttentionV4", "FusedInferAttentionScoreV3"])
@pytest.mark.parametrize("blocked", [False, True])
def test_attention_of_one_query_over_a_cache(name: str, blocked: bool) -> None:
    query, key, value = real(2, 4, 1, 8), real(2, 2, 6, 8), real(2, 2, 6, 8)
    lengths, table = [3, 6], torch.tensor([[4, 0, 2], [1, 3, 5]], dtype=torch.int32)
    wide = query.double(), key.double(), value.double()
    parts = [(wide[0][i], *(x[i, :, :n] for x in wide[1:])) for i, n in enumerate(lengths)]
    out = torch.stack([attention(*part, 0.4)[0] for part in parts])
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
    options |= {"num_heads": 4, "num_key_value_heads": 2, "scale": 0.4, "input_layout": "BNSD"}
    check(name, {"out": out}, 1e-4, query=query, key=inputs[0], value=inputs[1], **options)


@pytest.mark.parametrize("entries", [1, 2])
def test_attention_of_a_prompt_with_a_shift_of_its_scores(entries: int) -> None:
    query, key, value = real(2, 4, 3, 8), real(2, 2, 6, 8), real(2, 2, 6, 8)
    shift, mask = real(entries, 4, 5, 7), flags(3, 6) & (torch.arange(6) > 0)
    biased = shift[:, :, :3, :6].double().masked_fill(mask, -torch.inf).expand(2, 4, 3, 6)
    expected = F.scaled_dot_product_attention(
        query.double(), key.double(), value.double(), biased, scale=0.4, enable_gqa=True
    )
    given = {
        "query": query,
        "key": [key],
        "value": [value],
        "atten_mask": mask,
        "pre_tokens": 1000,
        "next_tokens": 1000,
    }
    given |= {"num_heads": 4, "num_key_value_heads": 2, "scale": 0.4, "input_layout": "BNSD"}
    check("FusedInferAttentionScoreV3", {"out": expected}, 1e-4, **given, pse_shift=shift)
    with pytest.raises(
        ValueError, match=r"pseShift has shape \[1, 1, 5, 7\], expected \[1 or 2, 4, at least 3"
    ):
        opapi.named(
            "FusedInferAttentionScoreV3", **given, pse_shift=shift[:1, :1], out=torch.zeros(2, 4, 3, 8)
        )


def test_arguments_that_attention_does_not_read_are_refused() -> None:
    one, out = real(1, 1, 2, 8), torch.zeros(1, 1, 2, 8)
    given = {"query": one, "key": [one], "value": [one], "num_heads": 1, "input_layout": "BNSD", "out": out}
    with pytest.raises(ValueError, match="antiquant_scale is not supported"):
        opapi.named("FusedInferAttentionScoreV2", **given, antiquant_scale=real(8))


@pytest.mark.parametrize("layout", ["SBH", "TND"])
def test_attention_over_parts_of_the_keys_joined(layout: str) -> None:
    query, key, value = (real(4, n, 8).double() for n in (5, 7, 7))
    (first, before), (second, now), (whole, sums) = (
        attention(query, key[:, part], value[:, part], 0.4) for part in (slice(3), slice(3, 7), slice(7))
    )

    def columns(x: torch.Tensor) -> torch.Tensor:
        x = x[None] if layout == "SBH" else x.T
        return x[..., None].expand(*x.shape, 8)

    def placed(x: torch.Tensor) -> torch.Tensor:
        return heads(x[None], "SBH") if layout == "SBH" else x.transpose(0, 1)

    ones = torch.ones_like(columns(sums))
    largest = torch.maximum(columns(before), columns(now))
    expected = {"attn_out": placed(whole), "softmax_max": largest}
    expected["softmax_sum"] = (columns(sums) - largest).exp()
    given = {"prev_out": placed(first), "prev_max": columns(before), "prev_sum": ones}
    given |= {"cur_out": placed(second), "cur_max": columns(now), "cur_sum": ones}
    check("RingAttentionUpdateV2", expected, 1e-4, **given, input_layout=layout)
    expected = {"out": whole.flatten(0, 1), "lse_out": sums.flatten()}
    parts = [part.flatten(0, 1) for part in (first, second)]
    lse = [before.flatten(), now.flatten()]
    check("AttentionUpdate", expected, 1e-4, update_type=1, lse=lse, local_out=parts)
