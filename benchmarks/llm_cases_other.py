"""More operators for llm_operators.py, without goals: unpadded batches, experts, scores, clipping."""

import torch
import torch.nn.functional as F
from llm_cases import Case, leaf

from isthmus import ops

Tensors = tuple[torch.Tensor, ...]


def scaled_masked_softmax(dtype: torch.dtype, portion: float) -> Case:
    tokens, heads, scale = round(1024 * portion), 16, 0.125
    scores = leaf(2, heads, tokens, tokens, dtype=dtype)
    mask = torch.rand(2, 1, tokens, tokens) < 0.2
    return Case(
        sizes=f"2 x {heads} x {tokens} x {tokens}",
        inputs=(scores,),
        ours=lambda x: ops.scaled_masked_softmax(x, mask, scale),
        eager=lambda x: (x * scale).masked_fill(mask, float("-inf")).softmax(-1),
        moved=(2 * scores.nbytes, 5 * scores.nbytes),
    )


def dropout_add_layer_norm(dtype: torch.dtype, portion: float) -> Case:
    """The end of a BERT layer."""
    tokens, hidden, share = round(4096 * portion), 1024, 0.1
    x, residual = leaf(tokens, hidden, dtype=dtype), leaf(tokens, hidden, dtype=dtype)
    weight, bias = leaf(hidden, dtype=dtype), leaf(hidden, dtype=dtype)
    return Case(
        sizes=f"{tokens} x {hidden}",
        inputs=(x, residual, weight, bias),
        ours=lambda x, r, w, b: ops.dropout_add_layer_norm(x, r, w, b, share, 1e-5),
        eager=lambda x, r, w, b: F.layer_norm(F.dropout(x, share) + r, (hidden,), w, b, 1e-5),
        moved=(3 * x.nbytes, 7 * x.nbytes),
    )


def clip_grad_norm(dtype: torch.dtype, portion: float) -> Case:
    sides = []
    for _ in range(2):
        params = [leaf(round(1024 * portion), 1024, dtype=dtype) for _ in range(20)] + [
            leaf(1024, dtype=dtype)
        ] * 20
        for each in params:
            each.grad = torch.randn(each.shape).to(dtype)
        sides.append(params)
    size = sum(each.nbytes for each in sides[0])
    return Case(
        sizes=f"40 tensors, {size / 2**20:.0f} MiB",
        inputs=(),
        ours=lambda: ops.clip_grad_norm_(sides[0], 1.0),
        eager=lambda: torch.nn.utils.clip_grad_norm_(sides[1], 1.0),
        moved=(3 * size, 0),
        in_place=True,
    )


def moe_permute(dtype: torch.dtype, portion: float) -> Case:
    """Tokens to two of eight experts and back, weighted; eager as in Megatron-LM."""
    tokens, hidden, experts, each = round(4096 * portion), 1024, 8, 2
    x, chosen = leaf(tokens, hidden, dtype=dtype), torch.rand(tokens, experts).topk(each).indices
    routing = torch.zeros(tokens, experts, dtype=torch.bool).scatter_(1, chosen, True)
    probs = leaf(tokens, experts, dtype=dtype)

    def ours(x: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
        permuted, _, rows = ops.permute(x, routing, num_out_tokens=tokens * each)
        return ops.unpermute(permuted, rows, x.shape, probs, routing)

    def eager(x: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(tokens, device=x.device).expand(experts, -1).masked_select(routing.t())
        weighted = x.index_select(0, rows) * probs.t().masked_select(routing.t()).unsqueeze(-1)
        return torch.zeros_like(x).scatter_add(0, rows.unsqueeze(1).expand(-1, hidden), weighted)

    return Case(
        sizes=f"{tokens} x {hidden}, {each} of {experts}",
        inputs=(x, probs),
        ours=ours,
        eager=eager,
        moved=(6 * x.nbytes, 12 * x.nbytes),
    )


def grouped_matmul(dtype: torch.dtype, portion: float) -> Case:
    rows, hidden, groups = round(4096 * portion), 512, 16
    x, weight = leaf(rows, hidden, dtype=dtype), leaf(groups, hidden, hidden, dtype=dtype)
    sizes = torch.randint(0, groups, (rows,)).bincount(minlength=groups)
    lengths, product = sizes.tolist(), 2 * rows * hidden * hidden
    return Case(
        sizes=f"{rows} x {hidden} x {hidden}, {groups} groups",
        inputs=(x, weight),
        ours=lambda x, weight: ops.grouped_matmul(x, weight, sizes),
        eager=lambda x, weight: torch.cat([a @ b for a, b in zip(x.split(lengths), weight, strict=True)]),
        flops=(product, 3 * product),
    )


def _lengths(portion: float) -> list[int]:
    return [round(length * portion) for length in (1024, 700, 512, 300, 256, 128, 1000, 36)]


def unpad_seqlen(dtype: torch.dtype, portion: float) -> Case:
    """Tokens from a padded batch and back."""
    lengths, hidden = _lengths(portion), 1024
    x = leaf(len(lengths), lengths[0], hidden, dtype=dtype)

    def ours(x: torch.Tensor) -> torch.Tensor:
        return ops.pad_seqlen(ops.unpad_seqlen(x, lengths), lengths, lengths[0])

    def eager(x: torch.Tensor) -> torch.Tensor:
        tokens = torch.cat([x[i, :length] for i, length in enumerate(lengths)])
        return torch.nn.utils.rnn.pad_sequence(list(tokens.split(lengths)), batch_first=True)

    kept = sum(lengths) * hidden * x.element_size()
    return Case(
        sizes=f"{len(lengths)} x {lengths[0]} x {hidden}",
        inputs=(x,),
        ours=ours,
        eager=eager,
        moved=(3 * kept + x.nbytes, 6 * kept + 2 * x.nbytes),
    )


def unpad_softmax(dtype: torch.dtype, portion: float) -> Case:
    lengths, heads = _lengths(portion), 8
    scores = leaf(heads * sum(length * length for length in lengths), dtype=dtype)

    def eager(x: torch.Tensor) -> torch.Tensor:
        parts = x.split([heads * length * length for length in lengths])
        pairs = zip(parts, lengths, strict=True)
        return torch.cat([each.view(-1, length).softmax(-1).flatten() for each, length in pairs])

    return Case(
        sizes=f"{len(lengths)} sequences to {lengths[0]}, {heads} heads",
        inputs=(scores,),
        ours=lambda x: ops.unpad_softmax(x, lengths, heads),
        eager=eager,
        moved=(2 * scores.nbytes, 5 * scores.nbytes),
    )


def unpad_rope(dtype: torch.dtype, portion: float) -> Case:
    lengths, heads, size = _lengths(portion), 16, 64
    angles = torch.outer(torch.arange(lengths[0]), 10000.0 ** (-torch.arange(0, size, 2) / size))
    cos, sin = (torch.cat([each, each], -1).to(dtype) for each in (angles.cos(), angles.sin()))
    query, key = (leaf(sum(lengths), heads * size, dtype=dtype) for _ in range(2))

    def turned(x: torch.Tensor, of_token: Tensors) -> torch.Tensor:
        by_head = x.view(-1, heads, size)
        first, second = by_head.chunk(2, -1)
        return (by_head * of_token[0] + torch.cat([-second, first], -1) * of_token[1]).flatten(1)

    def eager(query: torch.Tensor, key: torch.Tensor) -> Tensors:
        of_token = tuple(
            torch.cat([table[:length] for length in lengths]).unsqueeze(1) for table in (cos, sin)
        )
        return turned(query, of_token), turned(key, of_token)

    return Case(
        sizes=f"2 x {sum(lengths)} x {heads} x {size}",
        inputs=(query, key),
        ours=lambda query, key: ops.unpad_rope(query, key, cos, sin, lengths),
        eager=eager,
        moved=(4 * query.nbytes, 8 * query.nbytes),
    )


CASES = {
    "scaled_masked_softmax": scaled_masked_softmax,
    "dropout_add_layer_norm": dropout_add_layer_norm,
    "clip_grad_norm": clip_grad_norm,
    "moe_permute": moe_permute,
    "grouped_matmul": grouped_matmul,
    "unpad_seqlen": unpad_seqlen,
    "unpad_softmax": unpad_softmax,
    "unpad_rope": unpad_rope,
}
