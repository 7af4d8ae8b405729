"""Scaled masked softmax and its backward; a program holds whole rows."""

import torch
import triton
import triton.language as tl

from isthmus.ops.triton.launch import cdiv, in_rows, launch, like, plan, too_wide, wide


@triton.jit
def _forward(
    x_ptr, mask_ptr, out_ptr, rows, queries, keys, x_stride, heads, mask_batch, mask_head, mask_query, mask_key,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    key = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (key < keys)
    seen = inside
    if CAUSAL:
        seen = seen & (key <= row % queries + (keys - queries))
    if mask_ptr is not None:
        lead = row // queries
        at = (
            lead // heads * mask_batch
            + lead % heads * mask_head
            + row % queries * mask_query
            + key * mask_key
        )
        seen = seen & (tl.load(mask_ptr + at, seen, other=1) == 0)
    x = tl.load(x_ptr + row * x_stride + key, seen, other=float("-inf")).to(WIDE) * SCALE
    x = tl.where(seen, x, float("-inf"))  # for a negative scale too
    top = tl.max(x, 1, keep_dims=True)
    weight = tl.exp(x - top)
    out = weight / tl.sum(weight, 1, keep_dims=True)
    alive = tl.max((x != float("-inf")).to(tl.int32), 1, keep_dims=True) > 0  # a NaN counts as visible
    out = tl.where(alive, out, 0.0)
    if CAUSAL:  # for NaN rows too
        out = tl.where(key <= row % queries + (keys - queries), out, 0.0)
    tl.store(out_ptr + row * keys + key, out, inside)


@triton.jit
def _backward(
    grad_ptr, out_ptr, dx_ptr, rows, queries, keys, grad_stride, out_stride,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    key = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (key < keys)
    seen = inside
    if CAUSAL:
        seen = seen & (key <= row % queries + (keys - queries))
    grad = tl.load(grad_ptr + row * grad_stride + key, seen, other=0.0).to(WIDE)
    out = tl.load(out_ptr + row * out_stride + key, seen, other=0.0).to(WIDE)
    product = grad * out
    dx = (product - out * tl.sum(product, 1, keep_dims=True)) * SCALE
    tl.store(dx_ptr + row * keys + key, dx, inside)


def scaled_masked_softmax(
    input: torch.Tensor, mask: torch.Tensor | None, scale: float, causal: bool
) -> torch.Tensor:
    """The operator ``isthmus::scaled_masked_softmax``."""
    queries, keys = input.shape[-2:]
    x = in_rows(input)
    heads, strides = 1, [0, 0, 0, 0]
    if mask is not None:
        mask = _four(mask.expand(input.shape))
        heads, strides = mask.shape[1], list(mask.stride())
    out = like(input)
    by = plan(keys)
    launch(
        _forward, cdiv(x.shape[0], by.rows), (x, mask, out),
        (x.shape[0], queries, keys, x.stride(0), heads, *strides),
        {"SCALE": scale, "CAUSAL": causal, "WIDE": wide(input), "ROWS": by.rows, "BLOCK": by.block}, by.warps,
    )  # fmt: skip
    return out


def _four(mask: torch.Tensor) -> torch.Tensor:
    """The mask as [batch, heads, queries, keys]; a view up to four dimensions."""
    if mask.dim() > 4:
        return mask.flatten(0, -4)
    return mask[(None,) * (4 - mask.dim())]


def scaled_masked_softmax_backward(
    grad: torch.Tensor, out: torch.Tensor, scale: float, causal: bool
) -> torch.Tensor:
    """The operator ``isthmus::scaled_masked_softmax_backward``."""
    queries, keys = out.shape[-2:]
    slope, weight = in_rows(grad), in_rows(out)
    dx = like(out)
    by = plan(keys)
    launch(
        _backward, cdiv(weight.shape[0], by.rows), (slope, weight, dx),
        (weight.shape[0], queries, keys, slope.stride(0), weight.stride(0)),
        {"SCALE": scale, "CAUSAL": causal, "WIDE": wide(out), "ROWS": by.rows, "BLOCK": by.block}, by.warps,
    )  # fmt: skip
    return dx


def refuses_scaled_masked_softmax(input: torch.Tensor, *_: object) -> str:
    """Refuse rows too long for a program."""
    return too_wide(input)


refuses_scaled_masked_softmax_backward = refuses_scaled_masked_softmax
