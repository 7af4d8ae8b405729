"""Mixture of experts: permute tokens by expert, and multiply all experts' groups in one call."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from isthmus.ops import autocast, cpu
from isthmus.ops.registration import compute_dtype, operator


@operator("gather_rows", any_dtype=True)
def _gather_rows(input: torch.Tensor, rows: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    taken = input.index_select(0, rows)
    return taken if scale is None else (taken.to(compute_dtype(input)) * scale.unsqueeze(-1)).to(input.dtype)


@operator("scatter_rows", any_dtype=True)
def _scatter_rows(
    input: torch.Tensor, rows: torch.Tensor, scale: torch.Tensor | None, size: int
) -> torch.Tensor:
    wide = input.to(compute_dtype(input))
    scaled = wide if scale is None else wide * scale.unsqueeze(-1)
    sums = torch.zeros((size, input.shape[1]), dtype=wide.dtype, device=input.device)
    return sums.index_add_(0, rows, scaled.to(wide.dtype)).to(input.dtype)


@operator("row_products")
def _row_products(input: torch.Tensor, other: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    kind = compute_dtype(input)
    return (input.to(kind) * other.index_select(0, rows).to(kind)).sum(-1)


@operator("grouped_matmul")
def _grouped_matmul(
    input: torch.Tensor, weight: torch.Tensor, sizes: torch.Tensor, trans_b: bool
) -> torch.Tensor:
    used = weight.transpose(1, 2) if trans_b else weight
    parts = input.split(_checked(sizes, input, weight))
    return torch.cat([part @ each for part, each in zip(parts, used, strict=True)])


@operator("grouped_matmul_backward")
def _grouped_matmul_backward(
    grad: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, sizes: torch.Tensor, trans_b: bool,
    for_input: bool, for_weight: bool,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:  # fmt: skip
    lengths = _checked(sizes, input, weight)
    dx = _grouped_matmul.composite(grad, weight, sizes, not trans_b) if for_input else None
    if not for_weight:
        return dx, None
    pairs = zip(grad.split(lengths), input.split(lengths), strict=True)
    dw = [g.t() @ x if trans_b else x.t() @ g for g, x in pairs]
    return dx, torch.stack(dw)


def _checked(sizes: torch.Tensor, input: torch.Tensor, weight: torch.Tensor) -> list[int]:
    found = sizes.tolist()
    if len(found) != weight.shape[0] or sum(found) != input.shape[0] or min(found, default=0) < 0:
        raise ValueError(
            f"grouped_matmul: the sizes of the groups are {found}; expected {weight.shape[0]} sizes from 0 on "
            f"that add up to {input.shape[0]} rows"
        )
    return list(found)


for _each in (_gather_rows, _scatter_rows, _row_products, _grouped_matmul, _grouped_matmul_backward):
    cpu.add(_each)


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, rows: torch.Tensor) -> Any:
        ctx.save_for_backward(rows)
        ctx.size = input.shape[0]
        return _gather_rows(input, rows, None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        return _scatter_rows(grad, *ctx.saved_tensors, None, ctx.size), None


class _ScatterRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, rows: torch.Tensor, scale: Any, size: int) -> Any:
        ctx.save_for_backward(input if scale is not None else None, rows, scale)
        return _scatter_rows(input, rows, scale, size)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        input, rows, scale = ctx.saved_tensors
        dx = _gather_rows(grad, rows, scale) if ctx.needs_input_grad[0] else None
        ds = _row_products(input, grad, rows).to(scale.dtype) if ctx.needs_input_grad[2] else None
        return dx, None, ds, None


class _GroupedMatmul(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input: torch.Tensor, weight: torch.Tensor, sizes: torch.Tensor, trans_b: bool
    ) -> Any:
        ctx.save_for_backward(input, weight, sizes)
        ctx.trans_b = trans_b
        return _grouped_matmul(input, weight, sizes, trans_b)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad[:2]
        return *_grouped_matmul_backward(grad, *ctx.saved_tensors, ctx.trans_b, *needed), None, None


def permute(
    tokens: torch.Tensor,
    routing_map: torch.Tensor,
    probs: torch.Tensor | None = None,
    num_out_tokens: int | None = None,
    drop_and_pad: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Sort tokens by expert, one row per (token, expert) pair, like Megatron-LM's ``moe_utils.permute``.

    Args:
        tokens: [tokens, hidden], float16, bfloat16, float32 or float64.
        routing_map: [tokens, experts], nonzero where a token is routed to an expert.
        probs: [tokens, experts], weights of the experts.
        num_out_tokens: rows of the result; passing it avoids a synchronization. Required with ``drop_and_pad``, where
            it is experts * capacity.
        drop_and_pad: give every expert exactly its capacity: its first tokens, padded with other tokens.

    Returns:
        (permuted tokens [out, hidden], their probabilities [out] or None, the token of each row [out] int64).

    Raises:
        ValueError: the map does not have one row per token, or ``drop_and_pad`` lacks ``num_out_tokens``.
    """
    _check_map(tokens.shape[0], routing_map, probs)
    if drop_and_pad:
        if num_out_tokens is None:
            raise ValueError("permute: drop_and_pad needs num_out_tokens = experts * capacity")
        capacity = num_out_tokens // routing_map.shape[1]
        if capacity > tokens.shape[0]:
            raise ValueError(
                f"permute: num_out_tokens {num_out_tokens} gives {routing_map.shape[1]} experts a capacity of "
                f"{capacity} each, above the {tokens.shape[0]} tokens; lower it"
            )
        order = routing_map.to(torch.int8).t().argsort(dim=-1, descending=True, stable=True)[:, :capacity]
        rows = order.reshape(-1)
        experts = torch.arange(routing_map.shape[1], device=rows.device).repeat_interleave(capacity)
    elif num_out_tokens is None:
        experts, rows = routing_map.t().nonzero(as_tuple=True)
    else:
        found = torch.nonzero_static(routing_map.t(), size=num_out_tokens)
        experts, rows = found.unbind(1)
    taken = None if probs is None else probs[rows, experts]
    return _GatherRows.apply(tokens, rows), taken, rows


def permute_by_experts(
    tokens: torch.Tensor,
    experts: torch.Tensor,
    probs: torch.Tensor | None = None,
    num_out_tokens: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """:func:`permute` with a list of experts per token instead of a map.

    Args:
        tokens: [tokens, hidden].
        experts: [tokens, k], indices of the experts.
        probs: [tokens, k], their weights.
        num_out_tokens: rows to keep; None keeps all.

    Returns:
        The results of :func:`permute`.

    Raises:
        ValueError: ``experts`` does not have one row per token.
    """
    _check_map(tokens.shape[0], experts, probs)
    order = experts.reshape(-1).argsort(stable=True)[:num_out_tokens]
    rows = order // experts.shape[1]
    return _GatherRows.apply(tokens, rows), None if probs is None else probs.reshape(-1)[order], rows


def _check_map(tokens: int, routing: torch.Tensor, probs: torch.Tensor | None) -> None:
    if (
        routing.dim() != 2
        or routing.shape[0] != tokens
        or (probs is not None and probs.shape != routing.shape)
    ):
        given = None if probs is None else tuple(probs.shape)
        raise ValueError(
            f"permute: the routing has shape {tuple(routing.shape)} and probs {given} for {tokens} tokens; both "
            "must be two-dimensional with one row per token"
        )


def unpermute(
    permuted_tokens: torch.Tensor,
    sorted_indices: torch.Tensor,
    restore_shape: Sequence[int],
    probs: torch.Tensor | None = None,
    routing_map: torch.Tensor | None = None,
    drop_and_pad: bool = False,
    *,
    permuted_probs: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sum the rows of each token, weighted by their probabilities, like Megatron-LM's ``moe_utils.unpermute``.

    Args:
        permuted_tokens: [out, hidden], in the order of :func:`permute`.
        sorted_indices: [out], the token of each row.
        restore_shape: (tokens, hidden).
        probs: [tokens, experts], as passed to :func:`permute`; needs ``routing_map``.
        routing_map: [tokens, experts].
        drop_and_pad: as passed to :func:`permute`.
        permuted_probs: [out], instead of ``probs`` and ``routing_map``.

    Returns:
        [tokens, hidden] in the dtype of ``permuted_tokens``; summed in float32 or wider, in the order of the rows.

    Raises:
        ValueError: ``probs`` without ``routing_map``.
    """
    if probs is not None:
        if routing_map is None:
            raise ValueError("unpermute: probs need the routing_map passed to permute()")
        permuted_probs = probs[sorted_indices, _experts(routing_map, len(sorted_indices), drop_and_pad)]
    return _ScatterRows.apply(permuted_tokens, sorted_indices, permuted_probs, restore_shape[0])


def _experts(routing_map: torch.Tensor, rows: int, drop_and_pad: bool) -> torch.Tensor:
    """The expert of each permuted row."""
    if drop_and_pad:
        experts = torch.arange(routing_map.shape[1], device=routing_map.device)
        return experts.repeat_interleave(rows // routing_map.shape[1])
    return torch.nonzero_static(routing_map.t(), size=rows)[:, 0]


def grouped_matmul(
    input: torch.Tensor,
    weight: torch.Tensor,
    group_sizes: torch.Tensor | Sequence[int],
    *,
    trans_b: bool = False,
) -> torch.Tensor:
    """Multiply each group of rows by its own weight, in one call.

    Args:
        input: [rows, in], groups in order.
        weight: [groups, in, out]; [groups, out, in] with ``trans_b``.
        group_sizes: [groups], rows of each group; 0 is allowed.
        trans_b: the weights are transposed.

    Returns:
        [rows, out].

    Raises:
        ValueError: shapes or sizes do not match.
    """
    input, weight = autocast.lower(input, weight)
    inner = weight.shape[2 if trans_b else 1] if weight.dim() == 3 else -1
    if input.dim() != 2 or inner != input.shape[1] or input.dtype != weight.dtype:
        raise ValueError(
            f"grouped_matmul: input is {input.dtype} {tuple(input.shape)} and weight {weight.dtype} "
            f"{tuple(weight.shape)} with trans_b={trans_b}; they cannot be multiplied"
        )
    sizes = torch.as_tensor(group_sizes, dtype=torch.int64, device=input.device)
    out: torch.Tensor = _GroupedMatmul.apply(input, weight, sizes, trans_b)
    return out
