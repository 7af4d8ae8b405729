"""Rotary position embedding; a program rotates all heads of one token, of query and key.

A position outside the tables gives NaN, because a kernel cannot raise.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from isthmus.ops.triton.launch import launch, like, power_of_2, wide


@triton.jit
def _rotate(
    query_ptr, out_ptr, key_ptr, key_out_ptr, cos_ptr, sin_ptr, positions_ptr, tokens, heads, key_heads, rotated,
    size, query_strides, out_strides, key_strides, key_out_strides, table_rows, table_batch, positions_batch, half,
    FULL: tl.constexpr, INTERLEAVED: tl.constexpr, CONJUGATE: tl.constexpr, COPY: tl.constexpr,
    WIDE: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Strides are (batch, token, head)."""
    batch = (tl.program_id(0) // tokens).to(tl.int64)
    token = (tl.program_id(0) % tokens).to(tl.int64)
    row = batch * table_batch + token
    known = token < table_rows
    if positions_ptr is not None:
        row = tl.load(positions_ptr + batch * positions_batch + token).to(tl.int64)
        known = (row >= 0) & (row < table_rows)
    pair = tl.arange(0, HALF)[None, :]
    first, second = pair, pair + half
    if INTERLEAVED:
        first, second = 2 * pair, 2 * pair + 1
    paired = pair < half
    width = 2 * half if FULL else half
    at = row * width + (first if FULL else pair)
    c1 = tl.load(cos_ptr + at, paired & known, other=float("nan")).to(WIDE)
    s1 = tl.load(sin_ptr + at, paired & known, other=float("nan")).to(WIDE)
    c2, s2 = c1, s1
    if FULL:
        c2 = tl.load(cos_ptr + row * width + second, paired & known, other=float("nan")).to(WIDE)
        s2 = tl.load(sin_ptr + row * width + second, paired & known, other=float("nan")).to(WIDE)
    if CONJUGATE:
        s1, s2 = -s2, -s1
    _rotate_heads(
        query_ptr, out_ptr, query_strides, out_strides, batch, token, heads, rotated, size, first, second, paired,
        half, c1, s1, c2, s2, COPY, WIDE, HEADS, REST,
    )  # fmt: skip
    if key_ptr is not None:
        _rotate_heads(
            key_ptr, key_out_ptr, key_strides, key_out_strides, batch, token, key_heads, key_heads, size, first,
            second, paired, half, c1, s1, c2, s2, COPY, WIDE, HEADS, REST,
        )  # fmt: skip


@triton.jit
def _rotate_heads(
    x_ptr, out_ptr, x_strides, out_strides, batch, token, heads, rotated, size, first, second, paired, half,
    c1, s1, c2, s2, COPY: tl.constexpr, WIDE: tl.constexpr, HEADS: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    x_ptr += batch * x_strides[0] + token * x_strides[1]
    out_ptr += batch * out_strides[0] + token * out_strides[1]
    for start in range(0, rotated, HEADS):
        head = (start + tl.arange(0, HEADS)).to(tl.int64)[:, None]
        inside = (head < rotated) & paired
        a = tl.load(x_ptr + head * x_strides[2] + first, inside, other=0.0).to(WIDE)
        b = tl.load(x_ptr + head * x_strides[2] + second, inside, other=0.0).to(WIDE)
        tl.store(out_ptr + head * out_strides[2] + first, a * c1 - b * s1, inside)
        tl.store(out_ptr + head * out_strides[2] + second, b * c2 + a * s2, inside)
    if COPY:  # elements that are not rotated: the rest of each head, and the remaining heads
        element = tl.arange(0, REST)[None, :]
        for start in range(0, heads, HEADS):
            head = (start + tl.arange(0, HEADS)).to(tl.int64)[:, None]
            inside = (head < heads) & (element < size) & ((head >= rotated) | (element >= 2 * half))
            kept = tl.load(x_ptr + head * x_strides[2] + element, inside, other=0.0)
            tl.store(out_ptr + head * out_strides[2] + element, kept, inside)


def rotary(
    query: torch.Tensor, key: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor,
    positions: torch.Tensor | None, *settings: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """The operator ``isthmus::rotary``."""
    out, key_out = like(query), None if key is None else like(key)
    _launch(_unit(query), out, _unit(key), key_out, cos, sin, positions, *settings)
    return out, key_out


def rotary_(
    query: torch.Tensor, key: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor,
    positions: torch.Tensor | None, *settings: Any,
) -> None:  # fmt: skip
    """The operator ``isthmus::rotary_``."""
    x, y = _unit(query), _unit(key)
    _launch(x, x, y, y, cos, sin, positions, *settings)
    if x is not query:
        query.copy_(x)
    if key is not None and y is not key:
        key.copy_(y)


def _unit(tensor: torch.Tensor | None) -> Any:
    """The tensor with contiguous heads."""
    return tensor if tensor is None or tensor.stride(-1) == 1 else tensor.contiguous()


def _launch(
    query: torch.Tensor, out: torch.Tensor, key: torch.Tensor | None, key_out: torch.Tensor | None,
    cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor | None,
    seq_dim: int, dim: int, rotated: int, interleaved: bool, conjugate: bool,
) -> None:  # fmt: skip
    """Rotate the first ``rotated`` heads of the query, all if negative, and all of the key; outs may be inputs."""
    shape, head_dim = query.shape, 3 - seq_dim
    tokens, heads, size, half = shape[seq_dim], shape[head_dim], shape[3], dim // 2

    def strides(tensor: torch.Tensor | None) -> tuple[int, ...]:
        if tensor is None:
            return 0, 0, 0
        every = tensor.stride()
        return every[0], every[seq_dim], every[head_dim]

    several = positions is not None and positions.dim() > 1 and positions.size(0) > 1
    rows = cos.shape[:-1].numel() if positions is not None else cos.size(-2)
    block = power_of_2(max(half, 1))
    positions = None if positions is None else positions.contiguous()
    numbers = (
        tokens, heads, 0 if key is None else key.size(head_dim), heads if rotated < 0 else rotated, size,
        strides(query), strides(out), strides(key), strides(key_out), rows,
        cos.size(1) if cos.dim() == 3 and cos.size(0) > 1 else 0, tokens if several else 0, half,
    )  # fmt: skip
    constants = {
        "FULL": cos.size(-1) == dim, "INTERLEAVED": interleaved, "CONJUGATE": conjugate,
        "COPY": out is not query and (dim < size or 0 <= rotated < heads), "WIDE": wide(query),
        "HEADS": max(1, min(power_of_2(heads), 1024 // block)), "HALF": block, "REST": power_of_2(size),
    }  # fmt: skip
    tensors = query, out, key, key_out, cos.contiguous(), sin.contiguous(), positions
    launch(_rotate, shape[0] * tokens, tensors, numbers, constants, warps=4)
